"""NTK-RoPE corrected: digits and their periods both grow (Su, 2023, on mixed bases, Eq. 5)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkFixed(Rotary):
    """Pair i turns `factor ** (2 (i + 1) / d)` times slower, d = rotary_dim.

    Su's NTK-RoPE-fixed, 1 / (λ (β λ)^(m - 1)) with m = i + 1, β = base^(2/d), λ = factor^(2/d).
    The slowest pair is exactly `factor` times slower; the fastest is no longer untouched.

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
        num_pairs = rotary_dim // 2
        stretch = self.factor ** (np.arange(1, num_pairs + 1) / num_pairs)
        return geometric_inv_freq(self.base, rotary_dim) / stretch
