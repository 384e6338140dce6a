"""Gradient's curriculum (blog, May 2024) as they did it: Llama 3 8B to a million tokens.

Question: does the base that the scaling law asks for take Llama 3 8B from 8k to 1M tokens in three
stages? (The same at sizes that anybody can train: `gradient_curriculum`.)

Commands: the published weights become a run; another has all three stages, 20 steps each.

    python -m interop import DOWNLOADED/Meta-Llama-3-8B runs/llama3_8b
    python train.py gradient_llama3_8b --workdir runs/gradient_llama3_8b
    python evaluate.py runs/gradient_llama3_8b --step 20 --lengths 8192,65536
    python evaluate.py runs/gradient_llama3_8b --step 60 --lengths 8192,65536
    python report.py runs/gradient_llama3_8b
    python -m interop lm_eval runs/gradient_llama3_8b --tasks local_text
    python -m interop export runs/gradient_llama3_8b exported

Llama 3's tokenizer is a tokenizer.json, for which `tokenizers` is needed (extra `hf`). It joins
digits, so tasks that ask for numbers (`lines`, `needle`, `passkey`) refuse, and perplexity by
length is what is asked. `evaluate.py` scores on one device, and refuses what does not fit it,
with the length that would.

Memory: 87.5 of 95 GiB a chip on a v5p:4x4x4 (64 chips) at a million tokens, as compiled (`python -m
tpu.aot gradient_llama3_8b --topology v5p:4x4x4 start_from=None stages=[]
data.context_length=1048576 data.batch_size=4 train.accumulate=1`). `tpu.plan` reckons 77
GiB; for GPUs, where fewer logits are made at once, 73, which 64 of 141 GB hold and 64 of 80 GB do
not.

Cost: 1.0e20 FLOP, 60 steps of 4 million tokens. A step at a million tokens takes 224 s on those 64
chips if compute and network overlap, 235 s if not: 1.3 hours of that stage's 20; 22 to 36 s at 64k
tokens. About 120 chip hours in all. On 64 H200 at 40% MFU 66 minutes, 70 GPU hours.
Nothing of this was run.

Confirms: no stage's loss on text of its own length is above that of the stage before on text of
that one's, and the perplexity of a book falls up to the million tokens.
"""

from configs.changes import change
from experiment.config import EvalConfig
from studies.papers import scales
from studies.papers.gradient_curriculum import PAPER

# Four million tokens a step at every length: a chip has a sixteenth of one row at a time.
_ACCUMULATE = (4, 1)

cards = scales.at_each_scale(
    "gradient",
    "Does the scaling law's base take Llama 3 8B from 8k to 1M tokens in three stages?",
    source="Llama 3 8B (8192 tokens, base 5e5) taken to 65k, 262k and 1048k tokens in stages, each "
    "base by the law (Liu et al., arXiv 2310.05209). The post states no steps per stage; those "
    "here are ours.",
    refuted_if="A stage after which text of its length is predicted no better than text of the "
    "stage before it, having trained on as many tokens.",
    llama3_8b=change(
        PAPER,
        members=(),
        train=dict(accumulate=16, save_every=20),
        mesh=dict(fsdp=4, sequence=16),
        evals=EvalConfig(tasks=("perplexity",), lengths=(65_536, 1_048_576)),
        stages=tuple(
            (*stage, f"train.accumulate={count}")
            for stage, count in zip(PAPER.stages, _ACCUMULATE, strict=True)
        ),
    ),
)
