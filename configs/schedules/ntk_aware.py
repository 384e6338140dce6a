"""NTK-aware scaling, trained with from scratch: by definition a base of 85,550 at head 64.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.ntk_aware import NtkAware

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="ntk_aware",
        question="Is NTK-aware scaling, trained with, just another base?",
        members=(),
        model=dataclasses.replace(small.model, rotary=NtkAware(base=10_000.0, factor=8.0)),
    )
]
