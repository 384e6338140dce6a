"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), which rotates a third of each head.

Question: does a small base bound what a model with MLA retrieves?

Commands: a small and a large base.

    ropewalk sweep mla_cpu --workdir runs/mla_cpu
    ropewalk evaluate runs/mla_cpu
    ropewalk report runs/mla_cpu

Shifted keys and the query started at the keys (`model.shift_keys`, `model.align_query_key`) are on
at the CPU and GPU scales, as in the other cards: without them models this small learn to retrieve
late (induction heads form after some 1e8 tokens).

Confirms: once recall is learned, effective context is the whole trained length for both bases.

Refuted if: only the small base has an edge, near a period of the rotated pairs (for base 10 and 32
rotated dims a quarter period is 14 tokens and a full one 54).

Measured by: kv (cpu, gpu); lines and needle (paper).

Published: no measurement. Su (May 2024) notes that MLA is a partial rotation, born of necessity,
and that his argument holds for it: two thirds of each head are unrotated, so B_m >= 0 at every
distance and base.
"""

import dataclasses

from ropewalk.configs.changes import vary
from ropewalk.configs.papers import scales
from ropewalk.model.config import MlaConfig

small = MlaConfig(kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
medium = dataclasses.replace(small, kv_lora_rank=128)
# DeepSeek-V2-Lite's, which has the paper's width and heads.
lite = MlaConfig(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)

configs = scales.at_each_scale(
    "mla",
    "Does a base bound a model that rotates only a third of each head?",
    cpu=dict(
        model=dict(head_dim=96, mla=small),
        data=dict(context_length=64, batch_size=32),
        train=dict(num_steps=1500),
        members=vary("model.rotary.base", ("10", "1e4")),
    ),
    gpu=dict(
        model=dict(head_dim=96, mla=medium),
        train=dict(num_steps=2000),
        evals=dict(tasks=("kv", "lines", "perplexity")),
        members=vary("model.rotary.base", ("30", "300", "1e5")),
    ),
    paper=dict(
        model=dict(mla=lite, head_dim=192),
        members=vary("model.rotary.base", ("100", "1e4")),
    ),
)
