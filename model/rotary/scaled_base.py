"""The base that a target context asks for (Liu et al., arXiv 2310.05209, extended scaling law).

The rule behind Gradient's Llama 3 models of 262k and 1048k tokens (May 2024).
"""

import dataclasses
import math

import numpy as np

from model.rotary.base import Rotary, check_base, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledBase(Rotary):
    """RoPE with the base b' = b ** (ln(T' / 2π) / ln(T / 2π)), T and T' the two contexts.

    The pair that just completes a turn within T at base b just completes one within T' at b', so
    that no pair that was trained over its whole circle is left behind.

    Attributes:
      base: b, the base of the schedule being stretched.
      original_context_length: T, what that was trained at, in tokens; at least 7, more than 2π.
      target_context_length: T', in tokens, at least T.
    """

    base: float
    original_context_length: int
    target_context_length: int

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        original, target = self.original_context_length, self.target_context_length
        if not (isinstance(original, int | float) and 2 * math.pi < original < math.inf):
            raise ValueError(
                f"original_context_length must be at least 7 tokens, more than 2π, got {original!r}"
            )
        if not (isinstance(target, int | float) and original <= target < math.inf):
            raise ValueError(
                f"target_context_length must be at least original_context_length={original}, "
                f"got {target!r}"
            )

    @property
    def scaled_base(self) -> float:
        """b', what the law asks for."""
        turn = 2 * math.pi
        original, target = self.original_context_length / turn, self.target_context_length / turn
        return self.base ** (math.log(target) / math.log(original))

    def critical_dim(self, head_dim: int) -> int:
        """Features that see a whole turn in training at `base`: 2 ceil(d/2 log_b(T / 2π)).

        Those beyond meet unseen angles past the trained context; at most the rotated features.
        """
        rotary_dim = self.rotary_dim(head_dim)
        original = self.original_context_length / (2 * math.pi)
        turning = math.ceil(rotary_dim / 2 * math.log(original) / math.log(self.base))
        return min(2 * turning, rotary_dim)

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        return geometric_inv_freq(self.scaled_base, rotary_dim)
