"""Method 2 of Men et al. 2024 (arXiv 2405.14591, Section 5.5): a control that fails."""

import dataclasses
from typing import Annotated

import numpy as np

from ropewalk.model.rotary.base import Base, Factor, Stretched, geometric_inv_freq
from ropewalk.utils.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method2(Stretched):
    """Slow pairs are interpolated; fast pairs get a larger base, continuous with the slow ones.

    In a head of 128, with 44 raised pairs: (1e4 * 8^(128/88))^(-2i/128) for i < 44, and
    1e4^(-2i/128) / 8 for i >= 44. That is 8^(-i/44), at least 1/8, times the plain frequency. It
    shows that angles within the trained range are not sufficient: B_m becomes negative.

    Attributes:
      base, factor: the paper's by default.
      raised_fraction: share of the pairs, from the fastest on, that get a larger base: 44 of 64.

    Cookbook:
      frequency: θᵢ · s^(−min(i/i₀, 1)), i₀ = 44/64 of the pairs
      source: Men et al., [2405.14591](https://arxiv.org/abs/2405.14591) §5.5
      use: the paper's negative example: no unseen angle, yet B_m < 0
      transformers: –
      write: `method2`
    """

    base: Base = 1e4
    factor: Factor = 8.0
    raised_fraction: Annotated[float, Bounds(above=0, at_most=1)] = 44 / 64

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        num_pairs = rotary_dim // 2
        share = np.minimum(np.arange(num_pairs) / (self.raised_fraction * num_pairs), 1)
        return geometric_inv_freq(self.base, rotary_dim) / self.factor**share
