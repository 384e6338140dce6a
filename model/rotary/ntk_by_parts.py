"""NTK-by-parts (bloc97, 2023; YaRN, arXiv 2309.00071, Section 3.2, Definition 2)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_factor, check_positive, geometric_inv_freq


@dataclasses.dataclass(frozen=True, kw_only=True)
class NtkByParts(Rotary):
    """Fast pairs are kept, slow ones divided by `factor`; between, a ramp over turns.

    With r turns in the original context a pair keeps the share
    (r - beta_slow) / (beta_fast - beta_slow), clipped to [0, 1], of its frequency. This is the
    definition in YaRN's paper; YaRN's released code, and `yarn` here, ramp over the pair's index
    instead. No temperature.

    Attributes:
      base: the base of the schedule being stretched.
      factor: target context over original context, at least 1.
      original_context_length: context the unstretched schedule was trained at, tokens.
      beta_fast: pairs that turn more often than this over the original context are kept (β).
      beta_slow: pairs that turn less often than this are divided by `factor` (α).
    """

    base: float
    factor: float
    original_context_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_factor(self.factor)
        check_positive(self, "original_context_length", "beta_fast", "beta_slow")
        if not self.beta_fast > self.beta_slow:
            raise ValueError(
                f"beta_fast={self.beta_fast!r} must be above beta_slow={self.beta_slow!r}"
            )

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """See `Rotary.frequencies`."""
        plain = geometric_inv_freq(self.base, rotary_dim)
        turns = self.original_context_length * plain / (2 * np.pi)
        kept = np.clip((turns - self.beta_slow) / (self.beta_fast - self.beta_slow), 0, 1)
        return plain * (kept + (1 - kept) / self.factor)
