"""Dynamic NTK-aware scaling: a factor for each row (YaRN, 2309.00071, Section 3.3)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ropewalk.model.rotary.base import Dynamic, HfHead, Rotary
from ropewalk.model.rotary.ntk_aware import NtkAware


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicNtkAware(Dynamic):
    """`ntk_aware` with factor = row length / original context; plain RoPE where that is below 1.

    Cookbook:
      frequency: as ntk_aware, s = max(1, row length / L)
      source: YaRN, [2309.00071](https://arxiv.org/abs/2309.00071) §3.3
      use: evaluate past the trained length
      transformers: `dynamic` with factor 1
      write: `dynamic_ntk_aware(base=1e4,original_context_length=256)`
    """

    rope_type = "dynamic"
    stretched = NtkAware

    def to_hf(self, head: HfHead) -> None:
        """Return None: transformers has one factor for all rows of a batch."""

    @classmethod
    def from_hf(cls, rope: Mapping[str, Any], head: HfHead, length: int) -> Rotary | None:
        """Return the variant of rope parameters with factor 1; see `Rotary.from_hf`."""
        if rope.get("factor") != 1:
            raise ValueError(
                f"rope_type dynamic with factor={rope.get('factor')!r} is not imported; only "
                "factor=1 is (as dynamic_ntk_aware)"
            )
        rope = {**rope, "original_max_position_embeddings": head.context}
        return super().from_hf(rope, head, length)
