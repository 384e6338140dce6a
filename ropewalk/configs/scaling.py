"""Two sizes beyond the paper's, to plan their mesh, memory and time.

Question: what would the paper's experiment take at 7B and at 70B parameters (docs/scaling.md)?

The shapes are Llama 2's (Touvron et al. 2023, arXiv 2307.09288): 7B with as many key heads as query
heads, 70B with eight. Batches have 4 million tokens, as theirs do.
"""

from ropewalk.configs.changes import change, heads
from ropewalk.configs.paper_2b import configs as paper_2b

scale_7b = change(
    *paper_2b,
    name="scale_7b",
    question="What mesh, memory and time would 7B parameters take?",
    model=dict(heads(32, 128), vocab_size=32_000, mlp_dim=11_008, rotary=dict(base=10_000.0)),
    data=dict(vocab_size=32_000),
    train=dict(learning_rate=3e-4, accumulate=8),
)

scale_70b = change(
    scale_7b,
    name="scale_70b",
    question="What mesh, memory and time would 70B parameters take?",
    model=dict(embed_dim=8192, num_layers=80, num_heads=64, num_kv_heads=8, mlp_dim=28_672),
    train=dict(learning_rate=1.5e-4, accumulate=16),
)

configs = [scale_7b, scale_70b]
