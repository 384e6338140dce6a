"""Dynamic NTK-by-parts: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

from ropewalk.model.rotary.base import Dynamic
from ropewalk.model.rotary.ntk_by_parts import NtkByParts
from ropewalk.utils.checks import Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicNtkByParts(Dynamic):
    """`ntk_by_parts` with factor = row length / original context; plain RoPE where that is below 1.

    Attributes:
      beta_fast, beta_slow: as in `NtkByParts`.

    Cookbook:
      frequency: as ntk_by_parts, s = max(1, row length / L)
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) §3.3
      use: evaluate past the trained length
      transformers: –
      write: `dynamic_ntk_by_parts(base=1e4,original_context_length=256)`
    """

    stretched = NtkByParts

    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
