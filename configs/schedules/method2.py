"""Method 2 of Men et al.: no unseen angles either, but B_m turns negative.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.method2 import Method2

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="method2",
        question="Does the paper's bad example of two retrieve less far than its good one?",
        members=(),
        model=dataclasses.replace(small.model, rotary=Method2()),
    )
]
