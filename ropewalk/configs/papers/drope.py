r"""DroPE (arXiv 2512.12167, ICLR 2026): rotation that is removed after pretraining.

Question: does a model whose rotation is removed after pretraining, and which then trains a little
at its old length, retrieve at eight times this length, where stretched frequencies do not?

Commands: train a parent; continue it at its length without rotation, and unchanged as the control;
then stretch the control's frequencies without training.

    ropewalk train drope_cpu --workdir runs/drope_cpu/parent
    ropewalk sweep drope_cpu --workdir runs/drope_cpu/continued
    ropewalk evaluate runs/drope_cpu/continued
    ropewalk evaluate "runs/drope_cpu/continued/rotary=rope(base=10000)" \
        --rotary "trained,position_interpolation(factor=8),ntk_aware(factor=8),\
        yarn(factor=8,beta_fast=4)"
    ropewalk report runs/drope_cpu/continued

(gpu and paper: leave beta_fast out.)

Confirms: without rotation the loss at the trained length is within .05 nats of the control's, and
at eight times this length both loss and recall (kv) are better than with every stretch.

Refuted if: a stretch recalls farther at eight times the length, or the loss at the trained length
does not come back.

Published: models up to 7B recover within 0.5% to 2% of the tokens of their pretraining. At eight
times the length a needle is found in 52.5% of the texts, and in 12.2% with YaRN. (The CPU scale
continues for a fifth of the parent's tokens, the GPU scale for a tenth, the paper's for 0.5% of
Llama 2's.)
"""

from ropewalk.configs.changes import vary
from ropewalk.configs.papers import scales

VARIANTS = ("rope(base=10000)", "nope")

configs = scales.at_each_scale(
    "drope",
    "Does a model without its rotation retrieve beyond its trained length?",
    cpu=dict(
        data=dict(context_length=128, batch_size=16, retrieval_fraction=0.5),
        evals=dict(lengths=(128, 256, 512, 1024)),
        members=vary(
            "model.rotary",
            VARIANTS,
            "start_from=runs/drope_cpu/parent",
            "train.num_steps=100",
            *scales.CPU_CONTINUED,
        ),
    ),
    gpu=dict(
        data=dict(retrieval_fraction=0.1),
        evals=dict(tasks=("perplexity", "kv", "needle"), lengths=(1024, 2048, 4096, 8192)),
        members=vary(
            "model.rotary",
            VARIANTS,
            "start_from=runs/drope_gpu/parent",
            "train.num_steps=150",
            *scales.GPU_CONTINUED,
        ),
    ),
    paper=dict(
        config=scales.LLAMA2_7B,
        data=dict(context_length=4096, batch_size=512),
        train=dict(num_steps=4800, learning_rate=1e-4, warmup_steps=100),
        members=vary("model.rotary", VARIANTS),
    ),
)
