"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), of whose heads a third turns.

Question: does a small base bound what a model with MLA retrieves?

Found: nothing measured; Su (May 2024) notes that MLA is a partial rotation, born of necessity, for
which his argument holds: two thirds of each head rest, so B_m >= 0 at every distance and base.

Commands: a small and a large base.

    python sweep.py mla_cpu --workdir runs/mla_cpu
    python evaluate.py runs/mla_cpu
    python report.py runs/mla_cpu

Cost: cpu 3.1e13 FLOP, about 5 minutes; gpu 3.5e16 FLOP, about 6 minutes; paper 2.5e22 FLOP, about
741 days of one H100.

MLA has neither `shift_keys` nor `align_query_key`, without which models this small learn to
retrieve late (induction heads form after some 1e8 tokens). The CPU scale may therefore end
NOT_LEARNED, which answers nothing; then the GPU scale is the smallest that can.

Confirms: once learned, effective context (kv) is the whole trained length for both bases.
Refutes: an edge at the small base only, near a period of the turning pairs (a quarter period is 14
tokens for base 10 and 32 turning features; a full one 54).
"""

import dataclasses

from configs.experiments import scales
from experiment.dotted import apply
from model.config import MlaConfig

QUESTION = "Does a base bound a model of which only a third of each head turns?"

cpu, gpu = (
    apply(scale, ["model.shift_keys=false", "model.align_query_key=false"])
    for scale in (scales.CPU, scales.GPU)
)
small = MlaConfig(kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
medium = dataclasses.replace(small, kv_lora_rank=128)
# DeepSeek-V2-Lite's, which has the paper's width and heads.
lite = MlaConfig(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)

configs = [
    dataclasses.replace(
        apply(
            cpu,
            [
                "data.context_length=64",
                "data.batch_size=32",
                "train.num_steps=3000",
                "evals.tasks=[kv,perplexity]",
            ],
        ),
        name="mla_cpu",
        question=QUESTION,
        model=dataclasses.replace(cpu.model, mla=small, head_dim=96),
        members=(("model.rotary.base=10",), ("model.rotary.base=1e4",)),
    ),
    dataclasses.replace(
        apply(gpu, ["train.num_steps=2000", "evals.tasks=[kv,lines,perplexity]"]),
        name="mla_gpu",
        question=QUESTION,
        model=dataclasses.replace(gpu.model, mla=medium, head_dim=96),
        members=tuple((f"model.rotary.base={base}",) for base in ("30", "300", "1e5")),
    ),
    dataclasses.replace(
        apply(scales.PAPER_2B, ["evals.tasks=[lines,needle,perplexity]"]),
        name="mla_paper",
        question=QUESTION,
        model=dataclasses.replace(scales.PAPER_2B.model, mla=lite, head_dim=192),
        members=(("model.rotary.base=100",), ("model.rotary.base=1e4",)),
    ),
]
