"""Figure 3 of Men et al. 2024 (arXiv 2405.14591): low perplexity that hides a short context.

Question: does a model extended with a small base keep a low perplexity far past its context,
although it no longer retrieves beyond a short distance?

Commands: a parent at a short context, continued at eight times its length with three bases.

    ropewalk train figure3_superficial_cpu --workdir runs/figure3_superficial_cpu/parent
    ropewalk sweep figure3_superficial_cpu --workdir runs/figure3_superficial_cpu/longer
    ropewalk evaluate runs/figure3_superficial_cpu/longer
    ropewalk evaluate runs/figure3_superficial_cpu/longer --tasks fixed_target --lengths 512
    ropewalk report runs/figure3_superficial_cpu/longer

Confirms: from the trained length to four times that length, the small base's perplexity rises no
more than the large base's. At the trained length it is within 5% of the large base's. The small
base's effective context ends near its quarter period (15 tokens for base 10; the theory length
is 5), below the parent's 64 tokens. The large base's exceeds a quarter of the trained length.

Refuted if: the small base retrieves beyond the parent's context, or its perplexity explodes past
the trained length as the unchanged base's may.

Measured by: kv and perplexity (cpu, gpu); lines, needle and pg19 (paper).

Published: Llama 2 7B, fine-tuned at 32768 tokens with base 500 instead of 10000, keeps a low
perplexity up to 128k tokens. It fails at LongEval and at the needle from 1k tokens on, less than
its pretrained context of 4096 (Figure 3; Section 5.4 explains it by B_m < 0).
"""

from ropewalk.configs.papers import scales

configs = scales.continued(
    "figure3_superficial",
    "Does a small base keep perplexity low where it no longer retrieves?",
    "model.rotary.base",
    cpu=(("10", "100", "1e4"), dict(lengths=(64, 512, 2048))),
    gpu=(("30", "500", "1e5"), dict(lengths=(512, 4096, 16_384))),
    paper=(("500", "1e4", "1e6"), dict(lengths=(1024, 4096, 32_768, 131_072))),
)
