"""Dynamic YaRN: trained as plain RoPE, stretched at evaluation by each row's length.

The only difference to `base_30m` is the schedule, which at its trained length is plain RoPE.
"""

import dataclasses

from configs.base_30m import configs as base_30m
from model.rotary.dynamic_yarn import DynamicYarn

(small,) = base_30m

configs = [
    dataclasses.replace(
        small,
        name="dynamic_yarn",
        question="Evaluated past its context, does YaRN by each row's need keep retrieval?",
        members=(),
        model=dataclasses.replace(
            small.model, rotary=DynamicYarn(base=10_000.0, original_context_length=2048)
        ),
    )
]
