"""Method 2 of Men et al. 2024 (arXiv 2405.14591, Section 5.5): all angles seen, yet too short."""

import dataclasses
from typing import Annotated

import numpy as np

from model.rotary.base import Base, Factor, Stretched, geometric_inv_freq
from settings.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method2(Stretched):
    """Slow pairs are interpolated, the base of the fast ones is raised to meet them.

    In a head of 128, with 44 raised pairs: (1e4 * 8^(128/88))^(-2i/128) for i < 44, and
    1e4^(-2i/128) / 8 for i >= 44. That is 8^(-i/44), at least 1/8, times the plain frequency. The
    paper built it to show that angles within the trained range do not suffice: B_m turns negative.

    Attributes:
      base, factor: the paper's by default.
      raised_fraction: share of the pairs, from the fastest, whose base is raised: 44 of 64.

    Cookbook:
      frequency: θᵢ · s^(−min(i/i₀, 1)), i₀ = 44/64 of the pairs
      source: Men et al., [2405.14591](https://arxiv.org/abs/2405.14591) §5.5
      use: its bad one: no unseen angle, yet B_m < 0
      transformers: –
      write: `method2`
    """

    base: Base = 1e4
    factor: Factor = 8.0
    raised_fraction: Annotated[float, Bounds(above=0, at_most=1)] = 44 / 64

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        num_pairs = rotary_dim // 2
        share = np.minimum(np.arange(num_pairs) / (self.raised_fraction * num_pairs), 1)
        return geometric_inv_freq(self.base, rotary_dim) / self.factor**share
