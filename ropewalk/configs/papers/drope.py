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
    ropewalk evaluate runs/drope_cpu/continued/rotary=nope --rotary "nope(log_n=extrapolate)"
    ropewalk report runs/drope_cpu/continued

(gpu and paper: leave beta_fast out.)

The last evaluation multiplies logits by ln(n) / ln(L) beyond the trained length L, which is
1 + c ln(n / L) with c = 1 / ln(L), .12 at 4,096 tokens. The authors multiply all logits of a test
by one number, which they choose (`softmax_scale` in their code).

Confirms: without rotation the loss at the trained length is within .05 nats of the control's, and
at eight times this length both loss and recall are better than with every stretch.

Refuted if: a stretch recalls farther at eight times the length, or the loss at the trained length
does not come back.

Measured by: kv and perplexity (cpu, gpu); lines, needle and pg19 (paper).

Published: models up to 7B recover within 0.5% to 2% of the tokens of their pretraining. At eight
times the length a needle is found in 52.5% of the texts, and in 12.2% with YaRN. (The CPU scale
continues for a fifth of the parent's tokens, the GPU scale for a tenth, the paper's for 0.5% of
Llama 2's.) The paper's scale is the authors' first recipe for Llama 2 7B (llama2_7b_drope.yaml at
github.com/SakanaAI/DroPE), but for the text: theirs is FineWeb-Edu, ours RedPajama. Their second
recipe has 15,000 steps at 3e-4 (`model.rotary=nope train.num_steps=15000 train.learning_rate=3e-4`)
and normalizes queries and keys; ours cannot, because a run that starts from another one has its
parameters, and the norm adds some.
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
        members=scales.members_from_parent(
            "drope_cpu", "model.rotary", VARIANTS, "train.num_steps=100", *scales.CPU_CONTINUED
        ),
    ),
    gpu=dict(
        data=dict(retrieval_fraction=0.1),
        evals=dict(tasks=("perplexity", "kv", "needle"), lengths=(1024, 2048, 4096, 8192)),
        members=scales.members_from_parent(
            "drope_gpu", "model.rotary", VARIANTS, "train.num_steps=150", *scales.GPU_CONTINUED
        ),
    ),
    paper=dict(
        config=scales.LLAMA2_7B,
        data=dict(context_length=4096, batch_size=512),
        train=dict(
            num_steps=5000,
            learning_rate=1e-4,
            schedule="cosine",
            final_fraction=0.0,
            warmup_steps=100,
            beta2=0.999,
        ),
        members=vary("model.rotary", VARIANTS),
    ),
)
