r"""Gradient's curriculum (blog, May 2024): length and base raised together, by step-1 perplexity.

Question: is the base with the lowest loss on the first batch, before any update, also the best base
after training at the longer length, and is it the base of the scaling law (`scaled_base`, Liu et
al., arXiv 2310.05209)?

Commands: train one run of three stages; scan the first-batch loss of other bases at its second
stage; then train its last stage with five variants from the same checkpoint. (gpu: step 1800,
length 8192, bases from 2e4; paper: step 40, length 1048576, bases from 1e7.)

    ropewalk train gradient_curriculum_cpu --workdir runs/gradient_curriculum_cpu/curriculum
    ropewalk evaluate runs/gradient_curriculum_cpu/curriculum --step 700 --lengths 1024 \
        --step1 base=400,800,1.6e3,3.1e3,6.3e3,1.2e4,2.4e4,5e4,1e5,1e6
    ropewalk evaluate runs/gradient_curriculum_cpu/curriculum
    ropewalk sweep gradient_curriculum_cpu --workdir runs/gradient_curriculum_cpu/last
    ropewalk evaluate runs/gradient_curriculum_cpu/last
    ropewalk report runs/gradient_curriculum_cpu/last runs/gradient_curriculum_cpu/curriculum

The members start from the run of stages.

Confirms: the members have the same order by first-batch loss as by perplexity after training at the
full length, and the law's base is within the intervals of the best.

Refuted if: the orders differ, or the law's base trains worse than an unchanged one. By Men et al.
one expects different orders by effective context and by perplexity.

Measured by: kv and perplexity (cpu, gpu); ruler and perplexity (paper).

Published: Llama 3 8B (8192 tokens, base 5e5) was extended to 65k, 262k and 1048k tokens in stages,
each with the law's base. At 262k to 1048k, NTK's base and the law's had lower step-1 perplexities
(first batch of 4M tokens) than bases chosen by hand like LWM's, and needed fewer tokens to reach a
low perplexity. The post gives no table and does not state its steps per stage; the steps here are
ours.
"""

from ropewalk.configs.changes import change, vary
from ropewalk.configs.papers import scales
from ropewalk.experiment.config import EvalConfig
from ropewalk.model.rotary.scaled_base import ScaledBase


def law(original: int, target: int, base: str) -> str:
    """Return the scaling law's variant for a stage."""
    lengths = f"original_context_length={original},target_context_length={target}"
    return f"scaled_base(base={base},{lengths})"


def last_stage(start: str, stage: tuple[str, ...], *variants: str) -> tuple[tuple[str, ...], ...]:
    """Return members that train the last stage as a separate run, one for each variant."""
    start = f"start_from=runs/gradient_curriculum_{start}"
    return vary("model.rotary", variants, start, "stages=[]", *stage)


CPU_CONTINUED = ("data.retrieval_fraction=0.75", *scales.CPU_CONTINUED)
CPU_MIDDLE = scales.extent(context_length=256, batch_size=8, num_steps=300)
CPU_LAST = scales.extent(context_length=1024, batch_size=4, num_steps=150)
GPU_MIDDLE = scales.extent(context_length=2048, batch_size=32, num_steps=300)
GPU_LAST = scales.extent(context_length=8192, batch_size=8, num_steps=200)
PAPER_MIDDLE = ("data.context_length=262144", "data.batch_size=16")
PAPER_LAST = scales.extent(context_length=1048576, batch_size=4, num_steps=20)

# Llama 3 8B; `gradient_llama3_8b` imports the parameters of `runs/llama3_8b`.
PAPER = change(
    scales.LLAMA2_7B,
    start_from="runs/llama3_8b",
    # The last stages have few rows.
    mesh=dict(fsdp=4, sequence=-1),
    model=dict(
        vocab_size=128_256,
        num_kv_heads=8,
        mlp_dim=14_336,
        rotary=ScaledBase(
            base=500_000.0, original_context_length=8192, target_context_length=65_536
        ),
    ),
    data=dict(
        tokenizer="runs/llama3_8b/tokenizer.json",
        context_length=65_536,
        batch_size=64,  # 4M tokens, as in the post
    ),
    train=dict(num_steps=20),
    evals=EvalConfig(tasks=("perplexity", "ruler"), lengths=(1_048_576,)),
    stages=(
        (*PAPER_MIDDLE, f"model.rotary={law(8192, 262_144, '5e5')}"),
        (*PAPER_LAST, f"model.rotary={law(8192, 1_048_576, '5e5')}"),
    ),
    members=last_stage(
        "paper/curriculum@40",
        PAPER_LAST,
        "rope(base=2.83e8)",
        "ntk_aware(base=2.83e8,factor=4)",
        law(8192, 1_048_576, "5e5"),
        "rope(base=5e7)",  # LWM's at this length
    ),
)

configs = scales.at_each_scale(
    "gradient_curriculum",
    "Does the first batch's loss choose the base of a longer context?",
    cpu=dict(
        # Half of the pairs complete a cycle, as 56% do in Llama 3's 8192 tokens.
        config=scales.CPU_SHORT,
        evals=dict(lengths=(1024,)),
        stages=(
            (*CPU_CONTINUED, *CPU_MIDDLE, f"model.rotary={law(64, 256, '100')}"),
            (*CPU_LAST, f"model.rotary={law(64, 1024, '100')}"),
        ),
        members=last_stage(
            "cpu/curriculum@700",
            (*CPU_CONTINUED, *CPU_LAST),
            "rope(base=1563)",  # the second stage's, unchanged
            "ntk_aware(base=1563,factor=4)",
            law(64, 1024, "100"),
            "position_interpolation(base=1563,factor=4)",
            "rope(base=1e6)",
        ),
    ),
    gpu=dict(
        config=scales.GPU_SHORT,
        model=dict(rotary=dict(base=5000.0)),
        evals=dict(tasks=("kv", "needle", "perplexity"), lengths=(8192,)),
        stages=(
            (*scales.GPU_CONTINUED, *GPU_MIDDLE, f"model.rotary={law(512, 2048, '5000')}"),
            (*GPU_LAST, f"model.rotary={law(512, 8192, '5000')}"),
        ),
        members=last_stage(
            "gpu/curriculum@1800",
            (*scales.GPU_CONTINUED, *GPU_LAST),
            "rope(base=7.3e4)",
            "ntk_aware(base=7.3e4,factor=4)",
            law(512, 8192, "5000"),
            "position_interpolation(base=7.3e4,factor=4)",
            "rope(base=1e8)",
        ),
    ),
    paper=dict(config=PAPER),
)
