"""LongRoPE (arXiv 2402.13753): every pair is slowed by a factor of its own, found by a search."""

import dataclasses
import math
from typing import Annotated

import numpy as np

from model.rotary.base import Base, Factor, Rotary, check_target, geometric_inv_freq, listed
from settings.checks import Bounds, Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longrope(Rotary):
    """Given factors, and the temperature that its published models (Phi-3) add.

    A checkpoint that has a `short_factor` and a `long_factor` list is two variants, one to either
    side of the original context; this is one of them.

    Attributes:
      base: the base of the series being stretched.
      pair_factors: λ_i, each at least 1: pair i rotates λ_i times slower (Eq. 2 and Section 3). One
        number a pair that rotates.
      original_context_length: L, context the unstretched variant was trained at, tokens; above 1.
      target_context_length: in tokens, at least L; decides the temperature only.
      cool_rest: features that do not rotate stay without the temperature (Phi-4-mini's, where it
        stands in cosines and sines).

    Cookbook:
      frequency: θᵢ / λᵢ, λ a list; logits × (1 + ln s / ln L)
      source: Ding et al., [2402.13753](https://arxiv.org/abs/2402.13753); Phi-3
      use: factors found by a search
      transformers: `longrope` (one of its two lists)
      write:
        `longrope(base=1e4,pair_factors=(1.0,...),original_context_length=4096,
        target_context_length=131072)`
    """

    base: Base
    pair_factors: tuple[Factor, ...]
    original_context_length: Annotated[int, Bounds(at_least=2)]
    target_context_length: Count
    cool_rest: bool = False

    def __post_init__(self):
        object.__setattr__(self, "pair_factors", listed(self.pair_factors))
        super().__post_init__()
        check_target(self.original_context_length, self.target_context_length)

    @property
    def logit_scale(self) -> float:
        """1 + ln s / ln L: sqrt of it scales q and k each, s = target over original context."""
        factor = self.target_context_length / self.original_context_length
        return 1 + math.log(factor) / math.log(self.original_context_length)

    @property
    def unrotated_logit_scale(self) -> float:
        """See `Rotary.unrotated_logit_scale`."""
        return 1.0 if self.cool_rest else self.logit_scale

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`; raises ValueError if there is not one factor a pair."""
        if len(self.pair_factors) != rotary_dim // 2:
            raise ValueError(
                f"pair_factors has {len(self.pair_factors)} numbers; rotary_dim={rotary_dim} needs "
                f"{rotary_dim // 2}, one a pair"
            )
        return geometric_inv_freq(self.base, rotary_dim) / np.array(self.pair_factors)
