"""Frequency Bands in RoPE (Oka et al., ICLR 2026, PR1PPxvG9Q): a base equal to the length.

Question: does a base equal to the trained length predict longer texts better than larger bases, and
do larger bases predict better within it?

Commands: four bases at one length; then each octave of pairs zeroed or frozen.

    ropewalk sweep frequency_bands_cpu --workdir runs/frequency_bands_cpu
    ropewalk evaluate runs/frequency_bands_cpu
    ropewalk report runs/frequency_bands_cpu
    ropewalk probes runs/frequency_bands_cpu --probes frequency_use,band_ablation

Confirms: at positions beyond the trained length the member with the base nearest to the length has
the lowest loss, by more than the paired intervals; within it no larger base is worse by more than
these; and freezing the rotation of its slowest octave of pairs costs less than that of any other
octave.

Refuted if: a larger base has the lowest loss beyond the trained length, or the slowest octave costs
the most.

Measured by: perplexity (cpu, gpu); pg19 (paper).

Published: in several models queries and keys have a band of high norm, which base and trained
length place. Pairs slower than the band can lose their rotation at inference with little effect. A
base equal to the trained length moves the band to slower pairs and improves extrapolation; a larger
base improves what is within the length. (Read as abstract; the sizes of the models and their steps
are ours.)
"""

from ropewalk.configs.changes import vary
from ropewalk.configs.papers import scales

configs = scales.at_each_scale(
    "frequency_bands",
    "Does a base equal to the trained length extrapolate best?",
    cpu=dict(
        data=dict(context_length=128, batch_size=16, retrieval_fraction=0.5),
        evals=dict(lengths=(128, 256, 512)),
        members=vary("model.rotary.base", ("32", "128", "1e4", "5e5")),
    ),
    gpu=dict(
        data=dict(retrieval_fraction=0.1),
        evals=dict(tasks=("perplexity", "kv"), lengths=(1024, 2048, 4096)),
        members=vary("model.rotary.base", ("128", "1024", "1e4", "5e5")),
    ),
    paper=dict(
        train=dict(num_steps=10_000),
        evals=dict(lengths=(4096, 8192, 16_384)),
        members=vary("model.rotary.base", ("4096", "1e4", "5e5")),
    ),
)
