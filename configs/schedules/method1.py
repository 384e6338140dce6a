"""Method 1 of Men et al.: no unseen angles, and B_m stays positive.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.method1 import Method1

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="method1",
        question="Does the paper's good example of two retrieve farther than its bad one?",
        members=(),
        model=dataclasses.replace(small.model, rotary=Method1()),
    )
]
