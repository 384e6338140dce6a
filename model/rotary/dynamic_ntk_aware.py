"""Dynamic NTK-aware scaling: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

import numpy as np

from model.rotary.base import Rotary, check_base, check_positive, geometric_inv_freq, stretched
from model.rotary.ntk_aware import NtkAware


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicNtkAware(Rotary):
    """`ntk_aware` with factor = row length / original context; plain RoPE where that is below 1.

    A row's factor is its own length's, never its neighbours' in a batch.

    Attributes:
      base: the base of the schedule being stretched.
      original_context_length: context the model was trained at, tokens.
    """

    base: float
    original_context_length: int

    def __post_init__(self):
        super().__post_init__()
        check_base(self.base)
        check_positive(self, "original_context_length")

    def at_length(self, length: int) -> Rotary:
        """See `Rotary.at_length`."""
        return stretched(self, NtkAware, length)

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Unstretched; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim)
