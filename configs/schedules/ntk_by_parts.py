"""NTK-by-parts, trained with from scratch: YaRN's ramp in turns, without the temperature.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.ntk_by_parts import NtkByParts

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="ntk_by_parts",
        question="What of YaRN is its ramp, what its temperature?",
        members=(),
        model=dataclasses.replace(
            small.model, rotary=NtkByParts(base=10_000.0, factor=8.0, original_context_length=256)
        ),
    )
]
