"""NTK-RoPE of mixed bases: each digit grows by its own share (Su, 2023, on mixed bases, Eq. 7)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkMixed(Rotary):
    """Pair m = i + 1 of d / 2 turns exp(a m^b) times slower, where a (d / 2)^b = ln factor.

    Fast pairs are stretched more than under `ntk_fixed`, since short distances, which train them,
    are the commonest. An exponent b of 1 is `ntk_fixed`, 0 is `position_interpolation`.

    Attributes:
      base: the base of the schedule being stretched.
      factor: target context over original context, at least 1; what the slowest pair gets.
      exponent: b, in [0, 1]: beyond that a slow digit would grow more than a fast one, below it
        one would shrink. 0.625 is Su's.
    """

    base: float
    factor: float
    exponent: float = 0.625

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_factor(self.factor)
        if not (isinstance(self.exponent, int | float) and 0 <= self.exponent <= 1):
            raise ValueError(f"exponent must be in [0, 1], got {self.exponent!r}")

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        num_pairs = rotary_dim // 2
        stretch = self.factor ** ((np.arange(1, num_pairs + 1) / num_pairs) ** self.exponent)
        return geometric_inv_freq(self.base, rotary_dim) / stretch
