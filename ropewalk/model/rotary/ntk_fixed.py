"""NTK-RoPE, corrected (Su, 2023, on mixed bases, Eq. 5)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Stretched, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkFixed(Stretched):
    """Pair i rotates `factor ** (2 (i + 1) / d)` times slower, d = rotary_dim.

    Su's NTK-RoPE-fixed, 1 / (λ (β λ)^(m - 1)) with m = i + 1, β = base^(2/d), λ = factor^(2/d).
    The slowest pair is exactly `factor` times slower; the fastest pair is slower too.

    Cookbook:
      frequency: θᵢ · s^(−2(i+1)/d)
      source: Su 2023, [mixed bases](https://kexue.fm/archives/9706), Eq. 5
      use: reaches s; the fastest pair is slower too
      transformers: –
      write: `ntk_fixed(base=1e4,factor=8)`
    """

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        num_pairs = rotary_dim // 2
        stretch = self.factor ** (np.arange(1, num_pairs + 1) / num_pairs)
        return geometric_inv_freq(self.base, rotary_dim) / stretch
