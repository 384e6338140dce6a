"""NoPE: nothing rotates; order reaches the model through the causal mask alone (2305.19466)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nope(Rotary):
    """The upper control of a sweep: retrieval that cannot depend on a base.

    Cookbook:
      frequency: 0
      source: [2305.19466](https://arxiv.org/abs/2305.19466)
      use: upper control: no bound from rotation
      transformers: –
      write: `nope`
    """

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        return np.zeros(rotary_dim // 2)
