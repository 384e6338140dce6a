"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), of whose heads a third rotates.

Question: does a small base bound what a model with MLA retrieves?

Commands: a small and a large base.

    python sweep.py mla_cpu --workdir runs/mla_cpu
    python evaluate.py runs/mla_cpu
    python report.py runs/mla_cpu

Cost: cpu 1.6e13 FLOP, about 3 minutes; gpu 3.5e16 FLOP, about 6 minutes; paper 2.5e22 FLOP, about
741 days of one H100.

Shifted keys and the query started at the keys (`model.shift_keys`, `model.align_query_key`) are on
at the CPU and GPU scales, as in the other cards: without them models this small learn to retrieve
late (induction heads form after some 1e8 tokens).

Confirms: once learned, effective context (kv) is the whole trained length for both bases.
"""

import dataclasses

from configs.changes import change, each
from model.config import MlaConfig
from studies.papers import scales

small = MlaConfig(kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
medium = dataclasses.replace(small, kv_lora_rank=128)
# DeepSeek-V2-Lite's, which has the paper's width and heads.
lite = MlaConfig(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)

cards = scales.at_each_scale(
    "mla",
    "Does a base bound a model of which only a third of each head rotates?",
    source="Nothing measured; Su (May 2024) notes that MLA is a partial rotation, born of "
    "necessity, for which his argument holds: two thirds of each head are unrotated, "
    "so B_m >= 0 at every distance and base.",
    refuted_if="An edge at the small base only, near a period of the rotated pairs (a quarter "
    "period is 14 tokens for base 10 and 32 rotated dims; a full one 54).",
    cpu=change(
        scales.CPU,
        model=dict(head_dim=96, mla=small),
        data=dict(context_length=64, batch_size=32),
        train=dict(num_steps=1500),
        members=each("model.rotary.base", ("10", "1e4")),
    ),
    gpu=change(
        scales.GPU,
        model=dict(head_dim=96, mla=medium),
        train=dict(num_steps=2000),
        evals=dict(tasks=("kv", "lines", "perplexity")),
        members=each("model.rotary.base", ("30", "300", "1e5")),
    ),
    paper=change(
        scales.PAPER_2B,
        model=dict(mla=lite, head_dim=192),
        members=each("model.rotary.base", ("100", "1e4")),
    ),
)
