"""p-RoPE: the slowest pairs do not turn (Barbero et al., arXiv 2410.06205, Section 6; Gemma)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class PRope(Rotary):
    """RoPE of the whole head with its slowest pairs held still.

    `rotary_fraction` is the paper's p (Gemma's `rope_proportion`), and here the exponent runs over
    all of the head: the pairs that turn do so as fast as without it. Under every other schedule
    the exponent runs over the rotated features, so that a fraction squeezes the whole series.

    Attributes:
      base: the base of the geometric series, above 1.
    """

    base: float

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`: of a head all of whose features turn."""
        return geometric_inv_freq(self.base, rotary_dim)

    def inv_freq(self, head_dim: int) -> np.ndarray:
        """See `Rotary.inv_freq`: the head's series, its tail set to zero."""
        turning = self.rotary_dim(head_dim) // 2
        return np.where(np.arange(head_dim // 2) < turning, self.frequencies(head_dim), 0.0)
