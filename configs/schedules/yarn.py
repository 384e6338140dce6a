"""YaRN, trained with from scratch.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.yarn import Yarn

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="yarn",
        question="Does YaRN's ramp help a model that has never known another schedule?",
        members=(),
        model=dataclasses.replace(
            small.model, rotary=Yarn(base=10_000.0, factor=8.0, original_context_length=256)
        ),
    )
]
