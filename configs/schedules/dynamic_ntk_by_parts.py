"""Dynamic NTK-by-parts: trained as plain RoPE, stretched at evaluation by each row's length.

The only difference to `base_30m` is the schedule, which at its trained length is plain RoPE.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.dynamic_ntk_by_parts import DynamicNtkByParts

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="dynamic_ntk_by_parts",
        question="Evaluated past its context, is stretching only the slow pairs by need enough?",
        members=(),
        model=dataclasses.replace(
            small.model, rotary=DynamicNtkByParts(base=10_000.0, original_context_length=2048)
        ),
    )
]
