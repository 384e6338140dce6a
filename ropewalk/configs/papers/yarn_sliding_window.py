r"""YaRN's sliding-window perplexities (Peng et al., arXiv 2309.00071 and their blog post).

Question: which stretch of the frequencies keeps perplexity falling with the window beyond the
trained context, without training there and after a little of it?

Commands: train a parent and evaluate it with every variant; then continue it at four times its
length with each variant. (YaRN's own fine-tuning took 400 steps, 0.1% of the pretraining data.)

    ropewalk train yarn_sliding_window_cpu --workdir runs/yarn_sliding_window_cpu/parent
    ropewalk evaluate runs/yarn_sliding_window_cpu/parent \
        --rotary "trained,position_interpolation(factor=4),ntk_aware(factor=4),\
        ntk_by_parts(factor=4,beta_fast=4),yarn(factor=4,beta_fast=4),\
        dynamic_position_interpolation,dynamic_ntk_aware,dynamic_yarn(beta_fast=4)"
    ropewalk sweep yarn_sliding_window_cpu --workdir runs/yarn_sliding_window_cpu/longer
    ropewalk evaluate runs/yarn_sliding_window_cpu/longer
    ropewalk report runs/yarn_sliding_window_cpu/longer runs/yarn_sliding_window_cpu/parent

(gpu and paper: leave beta_fast out, and factor=8 at the paper's.)

Confirms: untrained at four times the length, NTK-aware and dynamic NTK have a lower loss than
interpolation and than the unchanged base. Trained there, YaRN has a lower loss than interpolation,
and interpolation a lower one than NTK-aware.

Refuted if: the order differs by more than the paired intervals.

Published: perplexity over windows of long documents, stride 256. Without fine-tuning, NTK-aware
scaling keeps a lower perplexity than position interpolation. After fine-tuning, interpolation is
ahead of NTK-aware, and YaRN of both, on Llama models and on Mistral 7B. Dynamic NTK works
exceptionally well on models without fine-tuning. (The post shows charts without numbers.)
"""

from ropewalk.configs.changes import vary
from ropewalk.configs.papers import scales


def stretched(base: str, length: int, ramp: str = "") -> tuple[str, ...]:
    """Return a base and each way to stretch it from `length` tokens to four times as many."""
    ramp = f"base={base},factor=4,original_context_length={length}{ramp}"
    return (
        f"rope(base={base})",
        f"position_interpolation(base={base},factor=4)",
        f"ntk_aware(base={base},factor=4)",
        f"ntk_by_parts({ramp})",
        f"yarn({ramp})",
    )


configs = scales.at_each_scale(
    "yarn_sliding_window",
    "Which stretch keeps perplexity falling with the window?",
    cpu=dict(
        model=dict(rotary=dict(base=1000.0)),
        data=dict(retrieval_fraction=0.25),
        evals=dict(
            tasks=("sliding_window(stride=64,tokens=2048)", "kv"),
            lengths=(128, 256, 512, 1024),
            documents=32,
        ),
        members=vary(
            "model.rotary",
            # A third of Llama 2's pairs complete more than 32 cycles in its context, YaRN's
            # default; a third of these complete more than 4 in 256 tokens.
            stretched("1000", 256, ",beta_fast=4"),
            "start_from=runs/yarn_sliding_window_cpu/parent",
            *scales.extent(context_length=1024, batch_size=2, num_steps=200),
            *scales.CPU_CONTINUED,
        ),
    ),
    gpu=dict(
        model=dict(rotary=dict(base=1e4)),
        data=dict(retrieval_fraction=0.1),
        evals=dict(tasks=("sliding_window", "kv", "needle"), lengths=(512, 1024, 2048, 4096)),
        members=vary(
            "model.rotary",
            stretched("1e4", 1024),
            "start_from=runs/yarn_sliding_window_gpu/parent",
            *scales.GPU_LONGER,
            "train.num_steps=200",
        ),
    ),
    paper=dict(
        config=scales.LLAMA2_7B,
        data=dict(batch_size=64),
        train=dict(num_steps=400, warmup_steps=20),
        evals=dict(tasks=("pg19", "passkey"), lengths=(4096, 8192, 16_384, 32_768)),
        members=vary(
            "model.rotary",
            (
                "position_interpolation(base=1e4,factor=8)",
                "ntk_aware(base=1e4,factor=8)",
                "yarn(base=1e4,factor=8,original_context_length=4096)",
            ),
        ),
    ),
)
