"""The slowest quarter of the pairs at rest, where a plain base 10,000 has its least used.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.p_rope import PRope

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="p_rope",
        question="Does a model need its slowest pairs turned at all?",
        members=(),
        model=dataclasses.replace(small.model, rotary=PRope(base=10_000.0, rotary_fraction=0.75)),
    )
]
