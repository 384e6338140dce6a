"""The base that Liu et al.'s law gives for 8 times the context, trained with from scratch.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.scaled_base import ScaledBase

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="scaled_base",
        question="Does the base of the extrapolation law suffice when trained with?",
        members=(),
        model=dataclasses.replace(
            small.model,
            rotary=ScaledBase(
                base=10_000.0, original_context_length=256, target_context_length=2048
            ),
        ),
    )
]
