"""Position interpolation, trained with from scratch.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.position_interpolation import PositionInterpolation

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="position_interpolation",
        question="What does a model lose whose positions are divided from the start?",
        members=(),
        model=dataclasses.replace(
            small.model, rotary=PositionInterpolation(base=10_000.0, factor=8.0)
        ),
    )
]
