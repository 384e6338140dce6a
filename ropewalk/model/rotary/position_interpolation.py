"""Position interpolation (arXiv 2306.15595, Eq. 3): positions divided by a factor."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositionInterpolation(Stretched):
    """Every pair rotates `factor` times slower, which equals dividing positions by `factor`.

    Cookbook:
      frequency: θᵢ / s
      source: Chen et al., [2306.15595](https://arxiv.org/abs/2306.15595) Eq. 3
      use: baseline of all stretches; blurs short distances
      transformers: `linear`
      write: `position_interpolation(base=1e4,factor=8)`
    """

    rope_type = "linear"

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim) / self.factor
