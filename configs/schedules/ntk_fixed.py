"""NTK-RoPE corrected, trained with from scratch: every pair slower, even the fastest.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.ntk_fixed import NtkFixed

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="ntk_fixed",
        question="What does a slower fastest pair cost a model that trains with it?",
        members=(),
        model=dataclasses.replace(small.model, rotary=NtkFixed(base=10_000.0, factor=8.0)),
    )
]
