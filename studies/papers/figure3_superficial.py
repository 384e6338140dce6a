"""Figure 3 of Men et al. 2024 (arXiv 2405.14591): low perplexity that hides a short context.

Question: is a model, extended with a small base, blind beyond a short distance while its perplexity
stays low far past its context?

Commands: a parent at a short context, continued at eight times its length with three bases.

    python train.py figure3_superficial_cpu --workdir runs/figure3_superficial_cpu/parent
    python sweep.py figure3_superficial_cpu --workdir runs/figure3_superficial_cpu/longer
    python evaluate.py runs/figure3_superficial_cpu/longer
    python evaluate.py runs/figure3_superficial_cpu/longer --tasks fixed_target --lengths 512
    python report.py runs/figure3_superficial_cpu/longer

Cost: cpu 9.8e12 FLOP, about 2 minutes; gpu 1.8e16 FLOP, about 3 minutes; paper 8.2e20 FLOP, about
24 days of one H100.

Confirms: at four times the trained length the small base's perplexity has risen no more than the
large base's, and is within 5% of it at the trained length, while its effective context (kv) ends
near its quarter period (15 tokens for base 10; theory's length is 5), below the 64 tokens of the
parent; the large base's is past a quarter of the trained length.
"""

from configs.changes import change, each
from studies.papers import scales

cards = scales.continued(
    "figure3_superficial",
    "Does a small base keep perplexity low where it no longer retrieves?",
    source="Llama 2 7B, fine-tuned at 32768 tokens with base 500 instead of 10000, keeps a "
    "low perplexity up to 128k tokens, yet fails at LongEval and at the needle from "
    "1k tokens on, less than the 4096 it was pretrained with (Figure 3; Section 5.4 "
    "explains it by B_m < 0).",
    refuted_if="The small base retrieves beyond the parent's context, or its perplexity explodes "
    "past the trained length as the unchanged base's may.",
    cpu=change(
        scales.CPU_SHORT,
        evals=dict(lengths=(64, 512, 2048)),
        members=each("model.rotary.base", ("10", "100", "1e4")),
    ),
    gpu=change(
        scales.GPU_SHORT,
        evals=dict(lengths=(512, 4096, 16_384)),
        members=each("model.rotary.base", ("30", "500", "1e5")),
    ),
    paper=change(
        scales.LLAMA2_7B,
        evals=dict(lengths=(1024, 4096, 32_768, 131_072)),
        members=each("model.rotary.base", ("500", "1e4", "1e6")),
    ),
)
