"""Llama 3.1's stepwise scaling, trained with from scratch.

The only difference to `base_30m` is the schedule.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.llama3 import Llama3

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="llama3",
        question="Does Llama 3.1's scaling bound retrieval when it is there from the start?",
        members=(),
        model=dataclasses.replace(
            small.model, rotary=Llama3(base=10_000.0, factor=8.0, original_context_length=256)
        ),
    )
]
