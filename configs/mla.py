"""Multi-head latent attention: any schedule on the part of each head that turns.

`mla_tiny` runs in tests; `mla_125m` is `base_125m` with DeepSeek-V2's proportions: a latent of four
heads' width, and half as many turning features as resting ones.
"""

import dataclasses

from configs.base_125m import configs as base_125m
from configs.tiny import configs as tiny_configs
from model.config import MlaConfig

(medium,), (tiny,) = base_125m, tiny_configs

configs = [
    dataclasses.replace(
        tiny,
        name="mla_tiny",
        question="Does everything run with latent attention? (tests)",
        model=dataclasses.replace(
            tiny.model,
            num_kv_heads=2,
            head_dim=24,
            mla=MlaConfig(
                kv_lora_rank=24,
                q_lora_rank=16,
                qk_nope_head_dim=16,
                qk_rope_head_dim=8,
                v_head_dim=16,
            ),
        ),
    ),
    dataclasses.replace(
        medium,
        name="mla_125m",
        question="Does a base bound a model of which only a third of each head turns?",
        model=dataclasses.replace(
            medium.model,
            head_dim=96,
            mla=MlaConfig(
                kv_lora_rank=256,
                q_lora_rank=384,
                qk_nope_head_dim=64,
                qk_rope_head_dim=32,
                v_head_dim=64,
            ),
        ),
    ),
]
