"""Dynamic YaRN: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses

from ropewalk.model.rotary.dynamic_ntk_by_parts import DynamicNtkByParts
from ropewalk.model.rotary.yarn import Yarn


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicYarn(DynamicNtkByParts):
    """`yarn` with factor = row length / original context; plain RoPE where that is below 1.

    Cookbook:
      frequency: as yarn, temperature too, s = max(1, row length / L)
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) §3.3
      use: evaluate past the trained length
      transformers: –
      write: `dynamic_yarn(base=1e4,original_context_length=256)`
    """

    stretched = Yarn
