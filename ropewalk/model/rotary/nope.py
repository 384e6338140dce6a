"""NoPE: nothing rotates; only the causal mask carries order (2305.19466)."""

import dataclasses

import numpy as np

from ropewalk.model.rotary.base import Rotary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nope(Rotary):
    """No rotation, the upper control of a sweep: its retrieval cannot depend on a base.

    Cookbook:
      frequency: 0
      source: [2305.19466](https://arxiv.org/abs/2305.19466)
      use: upper control: no bound from rotation
      transformers: –
      write: `nope`
    """

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return np.zeros(rotary_dim // 2)
