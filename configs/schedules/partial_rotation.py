"""Half of each head's pairs turn, at a base whose bound is far below the context.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.rope import Rope

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="partial_rotation",
        question="Does turning half of each head lift the bound of a small base?",
        members=(),
        model=dataclasses.replace(small.model, rotary=Rope(base=100.0, rotary_fraction=0.5)),
    )
]
