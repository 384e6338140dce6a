"""NTK-RoPE as first published, trained with from scratch: a base of 80,000.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.ntk_old import NtkOld

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="ntk_old",
        question="Is the first NTK scaling, trained with, just another base?",
        members=(),
        model=dataclasses.replace(small.model, rotary=NtkOld(base=10_000.0, factor=8.0)),
    )
]
