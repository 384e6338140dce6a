"""Frequencies of one's own: wavelengths evenly spaced from 2π to 2048 tokens.

The only difference to `base_30m` is the schedule.
"""

import dataclasses
import math

from configs.base_30m import configs as base_30m
from model.rotary.explicit import Explicit

(small,) = base_30m

NUM_PAIRS = small.model.head_dim // 2
STEP = (2048 - math.tau) / (NUM_PAIRS - 1)
EVEN = tuple(math.tau / (math.tau + i * STEP) for i in range(NUM_PAIRS))

configs = [
    dataclasses.replace(
        small,
        name="explicit",
        question="Are evenly spaced wavelengths better than a geometric series?",
        members=(),
        model=dataclasses.replace(small.model, rotary=Explicit(values=EVEN)),
    )
]
