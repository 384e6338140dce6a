"""The base for a target context (Liu et al., arXiv 2310.05209, extended scaling law).

Gradient's Llama 3 models of 262k and 1048k tokens (May 2024) use this rule.
"""

import dataclasses
import math
from typing import Annotated

import numpy as np

from ropewalk.model.rotary.base import Base, Rotary, check_target, geometric_inv_freq
from ropewalk.utils.checks import Bounds, Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledBase(Rotary):
    """RoPE with the base b' = b ** (ln(T' / 2π) / ln(T / 2π)), T and T' the two contexts.

    The pair that completes exactly one cycle within T at base b completes exactly one within T' at
    base b', so every pair that was trained over a full circle remains so.

    Attributes:
      base: b, base of the unstretched series.
      original_context_length: T, trained context of the unstretched variant, tokens; above 2π.
      target_context_length: T', target context, tokens, at least T.

    Cookbook:
      frequency: b'^(−2i/d), b' = b^(ln(T'/2π) / ln(T/2π))
      source: Liu et al., [2310.05209](https://arxiv.org/abs/2310.05209); Gradient's Llama 3
      use: the smallest base, by that law, for a context of T' after T
      transformers: `default`
      write: `scaled_base(base=5e5,original_context_length=8192,target_context_length=262144)`
    """

    base: Base
    original_context_length: Annotated[int, Bounds(at_least=7)]
    target_context_length: Count

    def __post_init__(self):
        super().__post_init__()
        check_target(self.original_context_length, self.target_context_length)

    @property
    def scaled_base(self) -> float:
        """b', the base of the scaling law."""
        cycle = 2 * math.pi
        original, target = self.original_context_length / cycle, self.target_context_length / cycle
        return self.base ** (math.log(target) / math.log(original))

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.scaled_base, rotary_dim)
