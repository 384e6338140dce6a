"""One config per rotary variant, otherwise `base_30m`: trained with it, what does a model see?

The variant is all that differs; `variants.toml` lists them. Dynamic ones are plain RoPE at the
trained length; they stretch at evaluation, by each row's length.
"""

import math
import tomllib
from pathlib import Path

from configs.base_30m import configs as base_30m
from configs.changes import change
from model import rotary

(small,) = base_30m

_NUM_PAIRS = small.model.head_dim // 2
_STEP = (2048 - math.tau) / (_NUM_PAIRS - 1)
_SERIES = {
    "even": tuple(math.tau / (math.tau + i * _STEP) for i in range(_NUM_PAIRS)),
    "ramp": tuple(1 + 7 * i / (_NUM_PAIRS - 1) for i in range(_NUM_PAIRS)),
}

_VARIANTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

configs = [
    change(
        small,
        name=name,
        question=variant["question"],
        members=(),
        model=dict(rotary=rotary.parse(variant["rotary"].format(**_SERIES))),
    )
    for name, variant in _VARIANTS.items()
]
