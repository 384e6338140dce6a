"""Dynamic position interpolation: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

from model.rotary.base import Dynamic, Rotary
from model.rotary.position_interpolation import PositionInterpolation


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicPositionInterpolation(Dynamic):
    """`position_interpolation`, factor = row length / original context; plain RoPE up to 1."""

    def at_length(self, length: int) -> Rotary:
        """See `Rotary.at_length`."""
        return self.stretched(PositionInterpolation, length)
