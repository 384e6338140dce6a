"""NTK-aware scaling (bloc97, 2023; YaRN, arXiv 2309.00071, Eq. 16)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkAware(Stretched):
    """The base raised to `base * factor ** (d / (d - 2))`, d = rotary_dim.

    The fastest pair does not change, and the slowest rotates exactly `factor` times slower, as
    under position interpolation. Pairs between are interpolated geometrically.

    Cookbook:
      frequency: (b·s^(d/(d−2)))^(−2i/d)
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) Eq. 16
      use: stretch without fine-tuning
      transformers: `dynamic` at one length
      write: `ntk_aware(base=1e4,factor=8)`
    """

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`.

        Raises:
          ValueError: if `rotary_dim` is 2: a single pair is both the fastest and the slowest.
        """
        if rotary_dim < 4:
            raise ValueError(f"ntk_aware needs rotary_dim >= 4, got {rotary_dim}")
        raised = self.base * self.factor ** (rotary_dim / (rotary_dim - 2))
        return geometric_inv_freq(raised, rotary_dim)
