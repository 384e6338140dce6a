"""Figure 7 of Men et al. 2024 (arXiv 2405.14591): a small base in pretraining, then larger ones.

Question: does a model pretrained at a small base retrieve only from the nearest part of its
context, and does it retrieve from farther once continued training raises the base?

Commands: a parent with a small base, continued at a longer context with larger bases, and with its
own as the control.

    ropewalk train figure7_pretrain_cpu --workdir runs/figure7_pretrain_cpu/parent
    ropewalk sweep figure7_pretrain_cpu --workdir runs/figure7_pretrain_cpu/longer
    ropewalk evaluate runs/figure7_pretrain_cpu/parent
    ropewalk evaluate runs/figure7_pretrain_cpu/longer
    ropewalk report runs/figure7_pretrain_cpu/longer runs/figure7_pretrain_cpu/parent

Confirms: effective context ends well inside the trained length in the parent (quarter periods: 15
tokens at base 10, 136 at base 100, 1266 at base 1000), is longer the larger the base of the
continued training, stays below 512 at base 100, and does not grow in the control.

Refuted if: the parent retrieves over all of its 128 tokens, or the control's effective context
equals that of base 100.

Measured by: kv (cpu, gpu); lines and needle (paper).

Published: a 2B model, pretrained at 4096 tokens with base 100, retrieves from about 500 tokens only
(Figure 7, first row). Fine-tuned at 32768 tokens, it retrieves from farther with base 1e4, but from
far less than 32768, and from farther still with base 1e6 (second and third row). Both rows are
fine-tuned from the model of the first.
"""

from ropewalk.configs.papers import scales

BASE = "model.rotary.base"

configs = scales.at_each_scale(
    "figure7_pretrain",
    "Does a base bound what is retrieved, and a larger one later undo it?",
    cpu=dict(
        model=dict(rotary=dict(base=10.0)),
        data=dict(context_length=128, batch_size=16),
        train=dict(num_steps=500),
        members=scales.members_from_parent(
            "figure7_pretrain_cpu", BASE, ("100", "1000", "10"), *scales.CPU_LONGER
        ),
    ),
    gpu=dict(
        model=dict(rotary=dict(base=30.0)),
        members=scales.members_from_parent(
            "figure7_pretrain_gpu", BASE, ("300", "1e4", "30"), *scales.GPU_LONGER
        ),
    ),
    paper=dict(
        members=scales.members_from_parent(
            "figure7_pretrain_paper",
            BASE,
            ("1e4", "1e6", "100"),
            *scales.extent(context_length=32768, batch_size=128, num_steps=1000),
            "train.learning_rate=2e-5",
            "train.schedule=constant",
            "train.warmup_steps=0",
            "train.weight_decay=0",
            "evals.lengths=[512,2048,8192,32768]",
        ),
    ),
)
