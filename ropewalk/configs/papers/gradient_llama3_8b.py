"""Gradient's curriculum (blog, May 2024) at its own scale: Llama 3 8B to 1M tokens.

Question: does the scaling law's base extend Llama 3 8B from 8k to 1M tokens in three stages?
(`gradient_curriculum` asks the same at smaller scales.)

Commands: import the published weights as a run; train another run with all three stages of 20
steps.

    ropewalk import DOWNLOADED/Meta-Llama-3-8B runs/llama3_8b
    ropewalk train gradient_llama3_8b --workdir runs/gradient_llama3_8b
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

Published: Llama 3 8B (8192 tokens, base 5e5) was extended to 65k, 262k and 1048k tokens in stages,
each with the law's base (Liu et al., arXiv 2310.05209). The post does not state its steps per
stage; the steps here are ours.
"""

from ropewalk.configs.changes import change
from ropewalk.configs.papers.gradient_curriculum import PAPER
from ropewalk.experiment.config import EvalConfig

first, second = PAPER.stages

configs = [
    change(
        PAPER,
        name="gradient_llama3_8b",
        question="Does the scaling law's base take Llama 3 8B from 8k to 1M tokens in three "
        "stages?",
        members=(),
        # Four million tokens a step at every length: a chip has a sixteenth of one row at a time.
        train=dict(accumulate=16, save_every=20),
        evals=EvalConfig(tasks=("perplexity", "ruler"), lengths=(65_536, 1_048_576)),
        stages=((*first, "train.accumulate=4"), (*second, "train.accumulate=1")),
    )
]
