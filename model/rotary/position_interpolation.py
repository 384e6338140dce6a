"""Position interpolation (arXiv 2306.15595, Eq. 3): positions divided by a factor."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositionInterpolation(Rotary):
    """Every pair turns `factor` times slower, which is the same as dividing positions by it.

    Attributes:
      base: the base of the schedule being stretched.
      factor: target context over original context, at least 1.
    """

    base: float
    factor: float

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_factor(self.factor)

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim) / self.factor
