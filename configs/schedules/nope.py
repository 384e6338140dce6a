"""NoPE: the upper control, retrieval that cannot depend on a base.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.nope import Nope

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="nope",
        question="What does a 30M model retrieve without any rotation?",
        members=(),
        model=dataclasses.replace(small.model, rotary=Nope()),
    )
]
