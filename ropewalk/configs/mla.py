"""Multi-head latent attention at the smallest size, for tests; `papers/mla.py` has experiments."""

from ropewalk.configs.changes import change
from ropewalk.configs.tiny import configs as tiny
from ropewalk.model.config import MlaConfig

small = MlaConfig(
    kv_lora_rank=24, q_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16
)

configs = [
    change(
        *tiny,
        name="mla_tiny",
        question="Does everything run with latent attention? (tests)",
        model=dict(num_kv_heads=2, head_dim=24, mla=small),
    ),
]
