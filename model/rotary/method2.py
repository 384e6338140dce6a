"""Method 2 of Men et al. 2024 (arXiv 2405.14591, Section 5.5): all angles seen, yet too short."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method2(Rotary):
    """Slow pairs are interpolated, the base of the fast ones is raised to meet them.

    In a head of 128, with 44 raised pairs: (1e4 * 8^(128/88))^(-2i/128) for i < 44, and
    1e4^(-2i/128) / 8 for i >= 44. That is 8^(-i/44), at least 1/8, times the plain frequency. The
    paper built it to show that angles within the trained range do not suffice: B_m turns negative.

    Attributes:
      base: the base of the schedule being stretched; the paper's by default.
      factor: target context over original context, at least 1; the paper's by default.
      raised_fraction: share of the pairs, from the fastest, whose base is raised: 44 of 64.
    """

    base: float = 1e4
    factor: float = 8.0
    raised_fraction: float = 44 / 64

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_factor(self.factor)
        if not (isinstance(self.raised_fraction, int | float) and 0 < self.raised_fraction <= 1):
            raise ValueError(f"raised_fraction must be in (0, 1], got {self.raised_fraction!r}")

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        num_pairs = rotary_dim // 2
        share = np.minimum(np.arange(num_pairs) / (self.raised_fraction * num_pairs), 1)
        return geometric_inv_freq(self.base, rotary_dim) / self.factor**share
