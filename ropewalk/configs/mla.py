"""Multi-head latent attention, with any rotary variant on the rotated part of each head.

`mla_tiny` is for tests. `mla_125m` is `base_125m` with DeepSeek-V2's proportions: a latent of four
heads' width, and half as many rotated dims as unrotated ones.
"""

from ropewalk.configs.base_125m import configs as base_125m
from ropewalk.configs.changes import change
from ropewalk.configs.tiny import configs as tiny
from ropewalk.model.config import MlaConfig

small = MlaConfig(
    kv_lora_rank=24, q_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16
)
large = MlaConfig(
    kv_lora_rank=256, q_lora_rank=384, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64
)

configs = [
    change(
        *tiny,
        name="mla_tiny",
        question="Does everything run with latent attention? (tests)",
        model=dict(num_kv_heads=2, head_dim=24, mla=small),
    ),
    change(
        *base_125m,
        name="mla_125m",
        question="Does a base bound a model that rotates only a third of each head?",
        model=dict(head_dim=96, mla=large),
    ),
]
