"""Dynamic position interpolation: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

from ropewalk.model.rotary.base import Dynamic
from ropewalk.model.rotary.position_interpolation import PositionInterpolation


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicPositionInterpolation(Dynamic):
    """`position_interpolation`, factor = row length / original context; plain RoPE up to 1.

    Cookbook:
      frequency: as position_interpolation, s = max(1, row length / L)
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) §3.3
      use: evaluate past the trained length, nothing changed below it
      transformers: –
      write: `dynamic_position_interpolation(base=1e4,original_context_length=256)`
    """

    stretched = PositionInterpolation
