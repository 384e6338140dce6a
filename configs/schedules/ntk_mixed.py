"""NTK-RoPE of mixed bases, trained with from scratch.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.ntk_mixed import NtkMixed

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="ntk_mixed",
        question="Does stretching fast pairs more than slow ones help a model trained with it?",
        members=(),
        model=dataclasses.replace(small.model, rotary=NtkMixed(base=10_000.0, factor=8.0)),
    )
]
