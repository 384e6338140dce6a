"""LongRoPE (arXiv 2402.13753): every pair is slowed by a factor of its own, found by a search."""

import dataclasses
import math

import numpy as np

from model.rotary.base import Rotary, check_base, float_tuple, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longrope(Rotary):
    """Given factors, and the temperature that its published models (Phi-3) add.

    A checkpoint that has a `short_factor` and a `long_factor` list is two schedules, one to either
    side of the original context; this is one of them.

    Attributes:
      base: the base of the schedule being stretched.
      pair_factors: λ_i, each at least 1: pair i turns λ_i times slower (Eq. 2 and Section 3). One
        number a pair that turns.
      original_context_length: L, context the unstretched schedule was trained at, tokens; above 1.
      target_context_length: in tokens, at least L; decides the temperature only.
    """

    base: float
    pair_factors: tuple[float, ...]
    original_context_length: int
    target_context_length: int

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        object.__setattr__(self, "pair_factors", float_tuple("pair_factors", self.pair_factors))
        if min(self.pair_factors) < 1:
            raise ValueError(f"pair_factors must be at least 1 each, got {min(self.pair_factors)}")
        original, target = self.original_context_length, self.target_context_length
        if not (isinstance(original, int | float) and 1 < original < math.inf):
            raise ValueError(f"original_context_length must be at least 2 tokens, got {original!r}")
        if not (isinstance(target, int | float) and original <= target < math.inf):
            raise ValueError(
                f"target_context_length must be at least original_context_length={original}, "
                f"got {target!r}"
            )

    @property
    def logit_scale(self) -> float:
        """1 + ln s / ln L: sqrt of it scales q and k each, s = target over original context."""
        factor = self.target_context_length / self.original_context_length
        return 1 + math.log(factor) / math.log(self.original_context_length)

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`.

        Raises:
          ValueError: if there is not one factor a pair.
        """
        if len(self.pair_factors) != rotary_dim // 2:
            raise ValueError(
                f"pair_factors has {len(self.pair_factors)} numbers; rotary_dim={rotary_dim} needs "
                f"{rotary_dim // 2}, one a pair"
            )
        return geometric_inv_freq(self.base, rotary_dim) / np.array(self.pair_factors)
