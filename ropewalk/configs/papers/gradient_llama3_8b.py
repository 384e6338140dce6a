"""Gradient's curriculum (blog, May 2024) at its own scale: Llama 3 8B to 1M and 4M tokens.

Question: does the scaling law's base extend Llama 3 8B from 8k to 1M tokens in three stages, and to
4M in a fourth? (`gradient_curriculum` asks the same at smaller scales.)

Commands: import the published weights as a run; train another run with three stages of 20 steps;
continue it at 4,194,304 tokens; and train the schedule of LWM, to which the post compares its own.

    ropewalk import DOWNLOADED/Meta-Llama-3-8B runs/llama3_8b
    ropewalk train gradient_llama3_8b --workdir runs/gradient_llama3_8b
    ropewalk train gradient_llama3_8b_4m --workdir runs/gradient_llama3_8b_4m
    ropewalk train lwm_llama3_8b --workdir runs/lwm_llama3_8b
    ropewalk evaluate runs/gradient_llama3_8b --step 20 --lengths 8192,65536
    ropewalk evaluate runs/gradient_llama3_8b --step 60 --lengths 8192,65536
    ropewalk report runs/gradient_llama3_8b
    ropewalk export runs/gradient_llama3_8b exported
    lm_eval --model hf --model_args pretrained=exported,add_bos_token=False --tasks wikitext

By default perplexity by length and RULER's tasks are evaluated, as the post does; the current
folder has the files of its questions (docs/evaluation.md), or these two are skipped. `evaluate.py`
scores on one device, and refuses what does not fit it, with the length that would.

Memory: `--check --devices 64` estimates it for 64 chips, and this compiles the last stage for them:
`ropewalk aot gradient_llama3_8b --topology v5p:4x4x4 start_from=None stages=[]
data.context_length=1048576 data.batch_size=4 train.accumulate=1`.

Confirms: no stage has a higher loss on text of its own length than the stage before has on text of
its length, and the perplexity of a book falls up to a million tokens.

Refuted if: a stage predicts text of its length no better than the stage before it, having trained
on as many tokens.

Measured by: perplexity and ruler (paper).

Published: Llama 3 8B (8192 tokens, base 5e5) was extended to 65k, 262k, 1048k and 4194k tokens in
stages, each with the law's base (Liu et al., arXiv 2310.05209). LWM's bases are 1e6 at 32k tokens,
1e7 at 131k and 262k, 2.5e7 at 524k and 5e7 at 1048k. The post states no steps per stage; the steps
here are ours.
"""

from ropewalk.configs.changes import change
from ropewalk.configs.papers.gradient_curriculum import PAPER, law
from ropewalk.experiment.config import EvalConfig
from ropewalk.model.rotary import parse_pattern

first, second = PAPER.stages

# Four million tokens a step at every length.
gradient = change(
    PAPER,
    name="gradient_llama3_8b",
    question="Does the scaling law's base take Llama 3 8B from 8k to 1M tokens in three stages?",
    members=(),
    # A chip has a sixteenth of one row at a time.
    train=dict(accumulate=16, save_every=20),
    evals=EvalConfig(tasks=("perplexity", "ruler"), lengths=(65_536, 1_048_576)),
    stages=((*first, "train.accumulate=4"), (*second, "train.accumulate=1")),
)


def lwm(length: int, base: str) -> tuple[str, ...]:
    """Return a stage of LWM's schedule."""
    rows = 2**22 // length
    return (
        f"data.context_length={length}",
        f"data.batch_size={rows}",
        f"train.accumulate={max(1, rows // 4)}",
        f"model.rotary=rope(base={base})",
    )


configs = [
    gradient,
    change(
        gradient,
        name="gradient_llama3_8b_4m",
        question="Does it go on to 4M tokens?",
        start_from="runs/gradient_llama3_8b",
        stages=(),
        # A step is one row, so that no axis splits rows.
        mesh=dict(fsdp=1, data=1, tensor=8, sequence=-1),
        model=dict(rotary=parse_pattern(law(8192, 4_194_304, "5e5"))),
        data=dict(context_length=4_194_304, batch_size=1),
        train=dict(accumulate=1),
        evals=dict(lengths=(65_536, 1_048_576, 4_194_304)),
    ),
    change(
        gradient,
        name="lwm_llama3_8b",
        question="Do the bases of LWM take Llama 3 8B to 1M tokens?",
        model=dict(rotary=parse_pattern("rope(base=1e6)")),
        data=dict(context_length=32_768, batch_size=128),
        train=dict(accumulate=32),
        stages=(
            lwm(131_072, "1e7"),
            lwm(262_144, "1e7"),
            lwm(524_288, "2.5e7"),
            lwm(1_048_576, "5e7"),
        ),
    ),
]
