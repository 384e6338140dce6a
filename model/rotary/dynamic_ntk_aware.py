"""Dynamic NTK-aware scaling: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

from model.rotary.base import Dynamic, Rotary
from model.rotary.ntk_aware import NtkAware


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicNtkAware(Dynamic):
    """`ntk_aware` with factor = row length / original context; plain RoPE where that is below 1."""

    def at_length(self, length: int) -> Rotary:
        """See `Rotary.at_length`."""
        return self.stretched(NtkAware, length)
