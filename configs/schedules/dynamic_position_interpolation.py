"""Dynamic position interpolation: trained as plain RoPE, stretched by each evaluated row.

The only difference to `base_30m` is the schedule, which at its trained length is plain RoPE.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.dynamic_position_interpolation import DynamicPositionInterpolation

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="dynamic_position_interpolation",
        question="Past its context, what does dividing positions by each row's need save?",
        members=(),
        model=dataclasses.replace(
            small.model,
            rotary=DynamicPositionInterpolation(base=10_000.0, original_context_length=2048),
        ),
    )
]
