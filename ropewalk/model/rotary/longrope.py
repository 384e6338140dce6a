"""LongRoPE (arXiv 2402.13753): each pair is slowed by its own factor, found by a search."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from ropewalk.model.rotary.base import (
    Base,
    Factor,
    HfHead,
    Rotary,
    as_floats,
    check_target,
    geometric_inv_freq,
)
from ropewalk.utils.checks import Bounds, Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longrope(Rotary):
    """A list of factors, and the temperature of the published models (Phi-3).

    A checkpoint with a `short_factor` and a `long_factor` list has two variants, one up to the
    original context and one beyond it. This class is one of the two.

    Attributes:
      base: base of the unstretched series.
      pair_factors: λ_i, at least 1: pair i rotates λ_i times slower (Eq. 2 and Section 3). One
        number per rotated pair.
      original_context_length: L, trained context of the unstretched variant, tokens; above 1.
      target_context_length: target context, tokens, at least L; it sets only the temperature.
      cool_rest: do not apply the temperature to unrotated features (Phi-4-mini, whose code puts
        the temperature into cosines and sines).

    Cookbook:
      frequency: θᵢ / λᵢ, λ a list; logits × (1 + ln s / ln L)
      source: Ding et al., [2402.13753](https://arxiv.org/abs/2402.13753); Phi-3
      use: a list of factors from a search
      transformers: `longrope` (one of its two lists)
      write:
        `longrope(base=1e4,pair_factors=(1.0,...),original_context_length=4096,
        target_context_length=131072)`
    """

    rope_type = "longrope"

    base: Base
    pair_factors: tuple[Factor, ...]
    original_context_length: Annotated[int, Bounds(at_least=2)]
    target_context_length: Count
    cool_rest: bool = False

    def __post_init__(self):
        object.__setattr__(self, "pair_factors", as_floats(self.pair_factors))
        super().__post_init__()
        check_target(self.original_context_length, self.target_context_length)

    @property
    def logit_scale(self) -> float:
        """1 + ln s / ln L, s = target over original context; its root scales q and k each."""
        factor = self.target_context_length / self.original_context_length
        return 1 + math.log(factor) / math.log(self.original_context_length)

    @property
    def unrotated_logit_scale(self) -> float:
        """Scale of unrotated features; see `Rotary.unrotated_logit_scale`."""
        return 1.0 if self.cool_rest else self.logit_scale

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies; see `Rotary.frequencies`. Needs one factor per pair."""
        if len(self.pair_factors) != rotary_dim // 2:
            raise ValueError(
                f"pair_factors has {len(self.pair_factors)} numbers; rotary_dim={rotary_dim} needs "
                f"{rotary_dim // 2}, one per pair"
            )
        return geometric_inv_freq(self.base, rotary_dim) / np.array(self.pair_factors)

    def to_hf(self, head: HfHead) -> None:
        """Return None: `interop` writes any vector as `longrope`, with one list for all lengths."""

    @classmethod
    def from_hf(cls, rope: Mapping[str, Any], head: HfHead, length: int) -> Rotary | None:
        """Return the variant for rows of `length` tokens; see `Rotary.from_hf`.

        None if a factor is below 1, or so large (1e25) that the pair does not rotate.
        """
        original = rope.get("original_max_position_embeddings") or head.context
        factors = rope["long_factor" if length > original else "short_factor"]
        if min(factors) < 1 or max(factors) >= 1e25:
            return None
        fields = {
            "pair_factors": tuple(factors),
            "original_max_position_embeddings": original,
            "target_context_length": max(head.context, original),
            "cool_rest": rope.get("partial_rotary_factor", 1.0) < 1,
        }
        return super().from_hf({**rope, **fields}, head, length)
