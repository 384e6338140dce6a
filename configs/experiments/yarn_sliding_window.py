r"""YaRN's sliding-window perplexities (Peng et al., arXiv 2309.00071 and their blog post).

Question: which stretch of the frequencies keeps perplexity falling with the window beyond the
trained context, without training and after a little of it?

Found: over windows of long documents, stride 256: without fine-tuning, NTK-aware scaling keeps a
lower perplexity than position interpolation; after fine-tuning interpolation is ahead of NTK-aware,
and YaRN of both, on Llama models and on Mistral 7B. Dynamic NTK works exceptionally well on models
that were not fine-tuned at all. (The post shows charts, no numbers.)

Commands: a parent, measured as it is under every schedule, then continued at four times its length
under each. (YaRN's own fine-tuning took 400 steps, 0.1% of the pretraining data.)

    python train.py yarn_sliding_window_cpu --workdir runs/yarn_sliding_window_cpu/parent
    python evaluate.py runs/yarn_sliding_window_cpu/parent \
        --rotary "trained,position_interpolation(factor=4),ntk_aware(factor=4),\
        ntk_by_parts(factor=4,beta_fast=4),yarn(factor=4,beta_fast=4),\
        dynamic_position_interpolation,dynamic_ntk_aware,dynamic_yarn(beta_fast=4)"
    python sweep.py yarn_sliding_window_cpu --workdir runs/yarn_sliding_window_cpu/longer
    python evaluate.py runs/yarn_sliding_window_cpu/longer
    python report.py runs/yarn_sliding_window_cpu/longer runs/yarn_sliding_window_cpu/parent

(gpu and paper: leave beta_fast out, and factor=8 at the paper's.)

Cost: cpu 1.1e13 FLOP, about 2 minutes; gpu 1.7e16 FLOP, about 3 minutes; paper 1.6e20 FLOP, about
4.8 days of one H100.

Confirms: untrained at four times the length, NTK-aware and dynamic NTK below interpolation and
below nothing done; trained there, YaRN below interpolation below NTK-aware.
Refutes: another order by more than the paired intervals.
"""

import dataclasses

from configs.experiments import scales
from experiment.dotted import apply

QUESTION = "Which stretch keeps perplexity falling with the window?"

CPU_LONGER = (
    "data.context_length=1024",
    "data.batch_size=2",
    "train.num_steps=200",
    "train.learning_rate=1e-3",
    "train.schedule=constant",
    "train.warmup_steps=10",
    "train.weight_decay=0",
)


def members(parent: str, longer: tuple[str, ...], schedules: tuple[str, ...]):
    """The parent, continued at a longer context under each schedule."""
    return tuple((f"start_from={parent}", *longer, f"model.rotary={how}") for how in schedules)


configs = [
    dataclasses.replace(
        apply(
            scales.CPU,
            [
                "model.rotary.base=1000",
                "data.retrieval_fraction=0.25",
                "evals.tasks=[sliding_window(stride=64,tokens=2048),kv]",
                "evals.lengths=[128,256,512,1024]",
                "evals.documents=32",
            ],
        ),
        name="yarn_sliding_window_cpu",
        question=QUESTION,
        members=members(
            "runs/yarn_sliding_window_cpu/parent",
            CPU_LONGER,
            (
                "rope(base=1000)",
                "position_interpolation(base=1000,factor=4)",
                "ntk_aware(base=1000,factor=4)",
                # A third of Llama 2's pairs turn more than 32 times in its context, YaRN's default;
                # a third of these turn more than 4 times in 256 tokens.
                "ntk_by_parts(base=1000,factor=4,original_context_length=256,beta_fast=4)",
                "yarn(base=1000,factor=4,original_context_length=256,beta_fast=4)",
            ),
        ),
    ),
    dataclasses.replace(
        apply(
            scales.GPU,
            [
                "model.rotary.base=1e4",
                "data.retrieval_fraction=0.1",
                "evals.tasks=[sliding_window,kv,needle]",
                "evals.lengths=[512,1024,2048,4096]",
            ],
        ),
        name="yarn_sliding_window_gpu",
        question=QUESTION,
        members=members(
            "runs/yarn_sliding_window_gpu/parent",
            (*scales.GPU_LONGER, "train.num_steps=200"),
            (
                "rope(base=1e4)",
                "position_interpolation(base=1e4,factor=4)",
                "ntk_aware(base=1e4,factor=4)",
                "ntk_by_parts(base=1e4,factor=4,original_context_length=1024)",
                "yarn(base=1e4,factor=4,original_context_length=1024)",
            ),
        ),
    ),
    dataclasses.replace(
        apply(
            scales.LLAMA2_7B,
            [
                "data.batch_size=64",
                "train.num_steps=400",
                "train.warmup_steps=20",
                "evals.tasks=[pg19,lines]",
                "evals.lengths=[4096,8192,16384,32768]",
            ],
        ),
        name="yarn_sliding_window_paper",
        question=QUESTION,
        members=tuple(
            (f"model.rotary={how}",)
            for how in (
                "position_interpolation(base=1e4,factor=8)",
                "ntk_aware(base=1e4,factor=8)",
                "yarn(base=1e4,factor=8,original_context_length=4096)",
            )
        ),
    ),
]
