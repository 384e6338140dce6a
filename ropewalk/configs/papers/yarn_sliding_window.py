r"""YaRN's sliding-window perplexities (Peng et al., arXiv 2309.00071 and their blog post).

Question: which stretch of the frequencies keeps perplexity falling with the window beyond the
trained context, without training there and after a little of it?

Commands: train a parent and evaluate it with every variant; then continue it at four times its
length with each variant.

    ropewalk train yarn_sliding_window_cpu --workdir runs/yarn_sliding_window_cpu/parent
    ropewalk evaluate runs/yarn_sliding_window_cpu/parent \
        --rotary "trained,position_interpolation(factor=4),ntk_aware(factor=4),\
        ntk_by_parts(factor=4,beta_fast=4),yarn(factor=4,beta_fast=4),\
        dynamic_position_interpolation,dynamic_ntk_aware,dynamic_yarn(beta_fast=4)"
    ropewalk sweep yarn_sliding_window_cpu --workdir runs/yarn_sliding_window_cpu/longer
    ropewalk evaluate runs/yarn_sliding_window_cpu/longer
    ropewalk report runs/yarn_sliding_window_cpu/longer runs/yarn_sliding_window_cpu/parent

(gpu and paper: leave beta_fast out, and factor=16 at the paper's.)

Confirms: untrained at four times the length, NTK-aware and dynamic NTK have a lower loss than
interpolation and than the unchanged base. Trained there, YaRN has a lower loss than interpolation,
and interpolation a lower one than NTK-aware.

Refuted if: the order differs by more than the paired intervals.

Measured by: sliding_window (cpu, gpu, paper).

The paper's scale is YaRN's fine-tuning of Llama 2 7B (github.com/jquesnelle/yarn, finetune.py): 16
times its length, 400 steps of 64 rows of 65,536 tokens of PG-19's books, at 2e-5 after 20 steps of
warmup, falling linearly to 0, with no weight decay. Differences: its published chunks begin and end
with BOS and EOS; here a row holds as many books as fit, with EOS in between, and attention stays in
a book. Give the folder of the books with `data.path=PG19/train`.

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
        members=scales.members_from_parent(
            "yarn_sliding_window_cpu",
            "model.rotary",
            # A third of Llama 2's pairs complete more than 32 cycles in its context, YaRN's
            # default; a third of these complete more than 4 in 256 tokens.
            stretched("1000", 256, ",beta_fast=4"),
            *scales.extent(context_length=1024, batch_size=2, num_steps=200),
            *scales.CPU_CONTINUED,
        ),
    ),
    gpu=dict(
        model=dict(rotary=dict(base=1e4)),
        data=dict(retrieval_fraction=0.1),
        evals=dict(tasks=("sliding_window", "kv", "needle"), lengths=(512, 1024, 2048, 4096)),
        members=scales.members_from_parent(
            "yarn_sliding_window_gpu",
            "model.rotary",
            stretched("1e4", 1024),
            *scales.GPU_LONGER,
            "train.num_steps=200",
        ),
    ),
    paper=dict(
        config=scales.LLAMA2_7B,
        data=dict(source="txt", context_length=65_536, batch_size=64),
        train=dict(
            num_steps=400, warmup_steps=20, schedule="wsd", decay_fraction=0.95, final_fraction=0.0
        ),
        evals=dict(
            tasks=("sliding_window", "pg19", "passkey"),
            lengths=(4096, 8192, 16_384, 32_768, 65_536),
        ),
        members=vary(
            "model.rotary",
            (
                "position_interpolation(base=1e4,factor=16)",
                "ntk_aware(base=1e4,factor=16)",
                "yarn(base=1e4,factor=16,original_context_length=4096)",
            ),
        ),
    ),
)
