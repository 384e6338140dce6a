"""NTK-RoPE with mixed bases: each pair has its own base (Su, 2023, on mixed bases, Eq. 7)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq
from ropewalk.utils.checks import Share


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkMixed(Stretched):
    """Pair m = i + 1 of d / 2 rotates exp(a m^b) times slower, where a (d / 2)^b = ln factor.

    Fast pairs are stretched more than under `ntk_fixed`, because short distances, which train them,
    are the most frequent. b = 1 is `ntk_fixed`, b = 0 is `position_interpolation`.

    Attributes:
      exponent: b, in [0, 1]; Su uses 0.625. Above 1, slow digits would grow more than fast ones;
        below 0, some would shrink.

    Cookbook:
      frequency: θᵢ / exp(a(i+1)^e), a(d/2)^e = ln s, e = 0.625
      source: Su 2023, [mixed bases](https://kexue.fm/archives/9706), Eq. 7
      use: stretch without fine-tuning; e = 1 is ntk_fixed, e = 0 position_interpolation
      transformers: –
      write: `ntk_mixed(base=1e4,factor=8)`
    """

    exponent: Share = 0.625

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        num_pairs = rotary_dim // 2
        stretch = self.factor ** ((np.arange(1, num_pairs + 1) / num_pairs) ** self.exponent)
        return geometric_inv_freq(self.base, rotary_dim) / stretch
