"""Plain RoPE (RoFormer, arXiv 2104.09864, Eq. 15)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Base, Rotary, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope(Rotary):
    """Pair i rotates `base ** (-2 i / rotary_dim)` radians per token.

    Attributes:
      base: base of the geometric series, the constant that this repository ablates; no default.

    Cookbook:
      frequency: θᵢ
      source: RoFormer, [2104.09864](https://arxiv.org/abs/2104.09864) Eq. 15
      use: the variant that is ablated; a larger base is ABF
      transformers: `default`
      write: `rope(base=1e4)`
    """

    rope_type = "default"

    base: Base

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim)
