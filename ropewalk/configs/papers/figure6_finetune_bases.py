"""Figures 6 and 9 of Men et al. 2024 (arXiv 2405.14591): fine-tuning for length with many bases.

Question: is there a base below which a model fine-tuned for a longer context cannot retrieve over
it, and is this base the smallest one with B_m >= 0 at all those distances (their Eq. 18)?

Commands: a parent at a short context, continued at eight times its length with six bases.

    ropewalk train figure6_finetune_bases_cpu --workdir runs/figure6_finetune_bases_cpu/parent
    ropewalk sweep figure6_finetune_bases_cpu --workdir runs/figure6_finetune_bases_cpu/bases
    ropewalk evaluate runs/figure6_finetune_bases_cpu/bases
    ropewalk report runs/figure6_finetune_bases_cpu/bases

Confirms: accuracy at the far end of the trained length crosses half of its ceiling between the
largest base below the bound and the smallest base above it (1000 and 10000 for 512 tokens and heads
of 64: the bound is 3439). Perplexities are within 2% of each other.

Refuted if: a base below the bound retrieves over the whole length (by its quarter period of 1266
tokens, base 1000 would), or a base above it does not, having learned the task at short distances.

Measured by: kv and perplexity (cpu, gpu); lines and pg19 (paper).

Published: Llama 2 7B (Figure 6) and Baichuan 2 7B (Figure 9) were fine-tuned at 32768 tokens with
bases around the bound of 6.4e5 (Table 2; 6.3e5 by `ropewalk theory bound --length 32k`).
Perplexity hardly differs. LongEval's accuracy falls below the bound. Base 2e5 has the lowest
perplexity and a very low accuracy.
"""

from ropewalk.configs.papers import scales

configs = scales.continued(
    "figure6_finetune_bases",
    "Below which base does a model fine-tuned for length not retrieve over it?",
    "model.rotary.base",
    cpu=(("10", "30", "100", "300", "1000", "1e4"), dict(lengths=(512,))),
    gpu=(("30", "100", "300", "1e3", "1e4", "1e6"), dict(lengths=(4096,))),
    paper=(("1e4", "1e5", "2e5", "6.4e5", "5e6", "1e9"), {}),
)
