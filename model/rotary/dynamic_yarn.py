"""Dynamic YaRN: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_positive, geometric_inv_freq, stretched
from model.rotary.yarn import Yarn


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicYarn(Rotary):
    """`yarn` with factor = row length / original context; plain RoPE where that is below 1.

    A row's factor is its own length's, never its neighbours' in a batch.

    Attributes:
      base: the base of the schedule being stretched.
      original_context_length: context the model was trained at, tokens.
      beta_fast, beta_slow: as in `Yarn`.
    """

    base: float
    original_context_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_positive(self, "original_context_length", "beta_fast", "beta_slow")
        self.at_length(2 * self.original_context_length)  # what Yarn refuses is refused now

    def at_length(self, length: int) -> Rotary:
        """See `Rotary.at_length`."""
        return stretched(self, Yarn, length)

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Unstretched; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim)
