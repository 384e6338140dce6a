"""NTK-RoPE as first published: the base times the factor (Su, 2023, on mixed bases, Eq. 3)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkOld(Stretched):
    """`(base * factor) ** (-2 i / d)`: a positional numeral system with larger digits.

    Su calls it NTK-RoPE-old. Its slowest pair is only factor / factor ** (2 / d) times slower;
    `ntk_aware` and `ntk_fixed` correct that.

    Cookbook:
      frequency: (b·s)^(−2i/d)
      source: Su 2023, [mixed bases](https://kexue.fm/archives/9706), Eq. 3
      use: NTK as first published; stretches by less than s
      transformers: –
      write: `ntk_old(base=1e4,factor=8)`
    """

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base * self.factor, rotary_dim)
