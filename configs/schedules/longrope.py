"""LongRoPE, trained with from scratch; for its searched factors a plain ramp, 1 to 8.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.longrope import Longrope

(small,) = base_30m

NUM_PAIRS = small.model.head_dim // 2
RAMP = tuple(1 + 7 * i / (NUM_PAIRS - 1) for i in range(NUM_PAIRS))

configs = [
    dataclasses.replace(
        small,
        name="longrope",
        question="What do factors that rise from pair to pair do to a model trained with them?",
        members=(),
        model=dataclasses.replace(
            small.model,
            rotary=Longrope(
                base=10_000.0,
                pair_factors=RAMP,
                original_context_length=256,
                target_context_length=2048,
            ),
        ),
    )
]
