r"""Gradient's curriculum (blog, May 2024): length and base raised together, by step-1 perplexity.

Question: does the base whose loss on the first batch is lowest, before any update, also train best
at the longer length; and is it what the scaling law asks for (`scaled_base`, Liu et al., arXiv
2310.05209)?

Found: Llama 3 8B (8192 tokens, base 5e5) taken to 65k, 262k and 1048k tokens in stages, each base
by the law. At 262k to 1048k, NTK's base or the law's had lower step-1 perplexities (first batch of
4M tokens) than a schedule by hand in the manner of LWM, and needed fewer tokens to reach a low
one. No table is given; the post does not state its steps a stage either, those here are ours.

Commands: one run of three stages; then its last stage with five other schedules, from the same
checkpoint, whose first-batch losses are scanned (gpu: step 1800, length 8192, bases from 2e4;
paper: step 40, length 1048576, bases from 1e7).

    python train.py gradient_curriculum_cpu --workdir runs/gradient_curriculum_cpu/curriculum
    python evaluate.py runs/gradient_curriculum_cpu/curriculum --step 700 --lengths 1024 \
        --step1 base=400,800,1.6e3,3.1e3,6.3e3,1.2e4,2.4e4,5e4,1e5,1e6
    python evaluate.py runs/gradient_curriculum_cpu/curriculum
    python sweep.py gradient_curriculum_cpu --workdir runs/gradient_curriculum_cpu/last
    python evaluate.py runs/gradient_curriculum_cpu/last
    python report.py runs/gradient_curriculum_cpu/last runs/gradient_curriculum_cpu/curriculum

Cost: cpu 1.8e13 FLOP, about 3 minutes; gpu 2.5e16 FLOP, about 4 minutes; paper 3.9e20 FLOP, about
12 days of one H100. (The members start from the run of stages, which is counted once.)

Confirms: the order of the members by first-batch loss is their order by perplexity after training
at the full length, and the law's base is within the intervals of the best.
Refutes: another order; or the law's base trains worse than an unchanged one. Men et al. lead one to
expect that the order by effective context (kv) is another than by perplexity.
"""

import dataclasses

from configs.experiments import scales
from data.config import DataConfig
from experiment.config import EvalConfig, ExperimentConfig, MeshConfig, TrainConfig
from experiment.dotted import apply
from model.config import ModelConfig
from model.rotary.scaled_base import ScaledBase

QUESTION = "Does the first batch's loss choose the base of a longer context?"


def law(original: int, target: int, base: str) -> str:
    """The schedule of a stage."""
    return (
        f"model.rotary=scaled_base(base={base},original_context_length={original},"
        f"target_context_length={target})"
    )


def last_stage(start: str, stage: tuple[str, ...], schedules: tuple[str, ...]):
    """The last stage as a run of its own, with other schedules."""
    return tuple(
        (f"start_from={start}", "stages=[]", *stage, f"model.rotary={how}") for how in schedules
    )


CPU_STAGE = (
    "data.retrieval_fraction=0.75",
    "train.learning_rate=1e-3",
    "train.schedule=constant",
    "train.warmup_steps=10",
    "train.weight_decay=0",
)
CPU_LAST = ("data.context_length=1024", "data.batch_size=4", "train.num_steps=150")
GPU_STAGE = (
    "train.learning_rate=5e-4",
    "train.schedule=constant",
    "train.warmup_steps=10",
    "train.weight_decay=0",
)
GPU_LAST = ("data.context_length=8192", "data.batch_size=8", "train.num_steps=200")
PAPER_LAST = ("data.context_length=1048576", "data.batch_size=4", "train.num_steps=20")

configs = [
    dataclasses.replace(
        apply(
            scales.CPU,
            [
                # Half of the pairs complete a turn in 64 tokens, as 56% do in Llama 3's 8192.
                "model.rotary.base=100",
                "data.context_length=64",
                "data.batch_size=32",
                "train.num_steps=400",
                "evals.tasks=[kv,perplexity]",
                "evals.lengths=[1024]",
            ],
        ),
        name="gradient_curriculum_cpu",
        question=QUESTION,
        stages=(
            (
                *CPU_STAGE,
                "data.context_length=256",
                "data.batch_size=8",
                "train.num_steps=300",
                law(64, 256, "100"),
            ),
            (*CPU_LAST, law(64, 1024, "100")),
        ),
        members=last_stage(
            "runs/gradient_curriculum_cpu/curriculum@700",
            (*CPU_STAGE, *CPU_LAST),
            (
                "rope(base=1563)",  # the second stage's, unchanged
                "ntk_aware(base=1563,factor=4)",
                "scaled_base(base=100,original_context_length=64,target_context_length=1024)",
                "position_interpolation(base=1563,factor=4)",
                "rope(base=1e6)",
            ),
        ),
    ),
    dataclasses.replace(
        apply(
            scales.GPU,
            [
                "model.rotary.base=5000",
                "data.context_length=512",
                "data.batch_size=128",
                "evals.tasks=[kv,needle,perplexity]",
                "evals.lengths=[8192]",
            ],
        ),
        name="gradient_curriculum_gpu",
        question=QUESTION,
        stages=(
            (
                *GPU_STAGE,
                "data.context_length=2048",
                "data.batch_size=32",
                "train.num_steps=300",
                law(512, 2048, "5000"),
            ),
            (*GPU_LAST, law(512, 8192, "5000")),
        ),
        members=last_stage(
            "runs/gradient_curriculum_gpu/curriculum@1800",
            (*GPU_STAGE, *GPU_LAST),
            (
                "rope(base=7.3e4)",
                "ntk_aware(base=7.3e4,factor=4)",
                "scaled_base(base=5000,original_context_length=512,target_context_length=8192)",
                "position_interpolation(base=7.3e4,factor=4)",
                "rope(base=1e8)",
            ),
        ),
    ),
    # Llama 3 8B, whose own pretraining nobody repeats: `runs/llama3_8b` has to hold its parameters.
    ExperimentConfig(
        name="gradient_curriculum_paper",
        question=QUESTION,
        start_from="runs/llama3_8b",
        stages=(
            ("data.context_length=262144", "data.batch_size=16", law(8192, 262_144, "5e5")),
            (*PAPER_LAST, law(8192, 1_048_576, "5e5")),
        ),
        members=last_stage(
            "runs/gradient_curriculum_paper/curriculum@40",
            PAPER_LAST,
            (
                "rope(base=2.83e8)",
                "ntk_aware(base=2.83e8,factor=4)",
                "scaled_base(base=5e5,original_context_length=8192,target_context_length=1048576)",
                "rope(base=5e7)",  # LWM's at this length
            ),
        ),
        model=ModelConfig(
            vocab_size=128_256,
            embed_dim=4096,
            num_layers=32,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            mlp_dim=14_336,
            rotary=ScaledBase(
                base=500_000.0, original_context_length=8192, target_context_length=65_536
            ),
            tie_embeddings=False,
            compute_dtype="bfloat16",
            remat="full",
        ),
        data=DataConfig(
            source="redpajama",
            path="data/redpajama",
            tokenizer="data/llama3/tokenizer.model",
            context_length=65_536,
            batch_size=64,  # 4M tokens, as in the post
            num_workers=8,
        ),
        train=TrainConfig(num_steps=20, learning_rate=2e-5, schedule="constant", weight_decay=0.0),
        mesh=MeshConfig(data=1, fsdp=-1),
        evals=EvalConfig(tasks=("needle", "perplexity"), lengths=(1_048_576,)),
    ),
]
