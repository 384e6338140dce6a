"""One config per rotary variant, otherwise `base_30m`: trained with it, what does a model see?

The variant is all that differs. Dynamic ones are plain RoPE at the trained length; they stretch at
evaluation, by each row's length.
"""

import math

from configs.base_30m import configs as base_30m
from configs.changes import change
from model import rotary

(small,) = base_30m

_NUM_PAIRS = small.model.head_dim // 2
_STEP = (2048 - math.tau) / (_NUM_PAIRS - 1)
_EVEN = tuple(math.tau / (math.tau + i * _STEP) for i in range(_NUM_PAIRS))
_RAMP = tuple(1 + 7 * i / (_NUM_PAIRS - 1) for i in range(_NUM_PAIRS))

_QUESTIONS = {
    "dynamic_ntk_aware(base=1e4,original_context_length=2048)": (
        "Evaluated past its context, does a base that grows with the row keep retrieval?"
    ),
    "dynamic_ntk_by_parts(base=1e4,original_context_length=2048)": (
        "Evaluated past its context, is stretching only the slow pairs by need enough?"
    ),
    "dynamic_position_interpolation(base=1e4,original_context_length=2048)": (
        "Past its context, what does dividing positions by each row's need save?"
    ),
    "dynamic_yarn(base=1e4,original_context_length=2048)": (
        "Evaluated past its context, does YaRN by each row's need keep retrieval?"
    ),
    # Wavelengths evenly spaced from 2π to 2048 tokens.
    f"explicit(values={_EVEN})": ("Are evenly spaced wavelengths better than a geometric series?"),
    "llama3(base=1e4,factor=8.0,original_context_length=256)": (
        "Does Llama 3.1's scaling bound retrieval when it is there from the start?"
    ),
    # A plain ramp from 1 to 8 for its searched factors.
    f"longrope(base=1e4,pair_factors={_RAMP},original_context_length=256,"
    "target_context_length=2048)": (
        "What do factors that rise from pair to pair do to a model trained with them?"
    ),
    "method1": ("Does the paper's good example of two retrieve farther than its bad one?"),
    "method2": ("Does the paper's bad example of two retrieve less far than its good one?"),
    "nope": ("What does a 30M model retrieve without any rotation?"),
    # By definition a base of 85,550 at a head of 64.
    "ntk_aware(base=1e4,factor=8.0)": ("Is NTK-aware scaling, trained with, just another base?"),
    "ntk_by_parts(base=1e4,factor=8.0,original_context_length=256)": (
        "What of YaRN is its ramp, what its temperature?"
    ),
    "ntk_fixed(base=1e4,factor=8.0)": (
        "What does a slower fastest pair cost a model that trains with it?"
    ),
    "ntk_mixed(base=1e4,factor=8.0)": (
        "Does stretching fast pairs more than slow ones help a model trained with it?"
    ),
    "ntk_old(base=1e4,factor=8.0)": ("Is the first NTK scaling, trained with, just another base?"),
    "p_rope(base=1e4,rotary_fraction=0.75)": ("Does a model need its slowest pairs turned at all?"),
    "rope(base=100.0,rotary_fraction=0.5)": (
        "Does turning half of each head lift the bound of a small base?"
    ),
    "position_interpolation(base=1e4,factor=8.0)": (
        "What does a model lose whose positions are divided from the start?"
    ),
    "scaled_base(base=1e4,original_context_length=256,target_context_length=2048)": (
        "Does the base of the extrapolation law suffice when trained with?"
    ),
    "yarn(base=1e4,factor=8.0,original_context_length=256)": (
        "Does YaRN's ramp help a model that has never known another schedule?"
    ),
}

configs = [
    change(
        small,
        # A config is called as its variant is; plain RoPE has part of a head to rotate here.
        name={"rope": "partial_rotation"}.get(name := text.partition("(")[0], name),
        question=question,
        members=(),
        model=dict(rotary=rotary.parse(text)),
    )
    for text, question in _QUESTIONS.items()
]
