"""One config per rotary variant: `base_30m` trained from scratch with each of them.

Only the variant differs; `variants.toml` lists the variants. Dynamic variants are plain RoPE at the
trained length and stretch at evaluation, by each row's length, so they are evaluated beyond it.
"""

import math
import tomllib
from pathlib import Path

from ropewalk.configs.base_30m import configs as base_30m
from ropewalk.configs.changes import change
from ropewalk.model import rotary

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
        evals=dict(lengths=tuple(variant.get("lengths", ()))),
    )
    for name, variant in _VARIANTS.items()
]
