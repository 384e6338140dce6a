r"""Figure 7 of Men et al. 2024 (arXiv 2405.14591): a small base in pretraining, then larger ones.

Question: does a model pretrained at a small base retrieve only from the nearest part of its
context, and does it retrieve from farther once continued training raises the base?

Commands: one run of three stages; `--step` names each stage's last checkpoint (gpu: 1500, 1900,
2300; paper: 238000, 239000, 240000). The control goes on at the long context with base 10.

    ropewalk train figure7_pretrain_cpu --workdir runs/figure7_pretrain_cpu/stages
    ropewalk train figure7_pretrain_cpu --workdir runs/figure7_pretrain_cpu/control \
        "stages=[[data.context_length=512,data.batch_size=4,data.retrieval_fraction=0.75,\
        train.num_steps=400,train.learning_rate=1e-3,train.schedule=constant,\
        train.warmup_steps=10,train.weight_decay=0],[]]"
    ropewalk evaluate runs/figure7_pretrain_cpu/stages --step 500
    ropewalk evaluate runs/figure7_pretrain_cpu/stages --step 900
    ropewalk evaluate runs/figure7_pretrain_cpu/stages --step 1300
    ropewalk evaluate runs/figure7_pretrain_cpu/control
    ropewalk report runs/figure7_pretrain_cpu/stages runs/figure7_pretrain_cpu/control

Confirms: effective context (kv) ends well inside the trained length in the first stage (quarter
periods: 15 tokens at base 10, 136 at base 100, 1266 at base 1000), grows with each stage, stays
below 512 in the second, and does not grow in the control.

Refuted if: the first stage retrieves over all of its 128 tokens, or the control's effective context
equals the second stage's.

Published: a 2B model, pretrained at 4096 tokens with base 100, retrieves from about 500 tokens only
(Figure 7, first row). Fine-tuned at 32768 tokens, it retrieves from farther with base 1e4, but from
far less than 32768, and from farther still with base 1e6 (second and third row). The paper
fine-tunes "the base 2B model" for each row. Here the third stage continues the second, so that one
run shows all.
"""

from ropewalk.configs.papers import scales

configs = scales.at_each_scale(
    "figure7_pretrain",
    "Does a base bound what is retrieved, and a larger one later undo it?",
    cpu=dict(
        model=dict(rotary=dict(base=10.0)),
        data=dict(context_length=128, batch_size=16),
        train=dict(num_steps=500),
        stages=((*scales.CPU_LONGER, "model.rotary.base=100"), ("model.rotary.base=1000",)),
    ),
    gpu=dict(
        model=dict(rotary=dict(base=30.0)),
        stages=((*scales.GPU_LONGER, "model.rotary.base=300"), ("model.rotary.base=1e4",)),
    ),
    paper=dict(
        stages=(
            (
                *scales.extent(context_length=32768, batch_size=128, num_steps=1000),
                "train.learning_rate=2e-5",
                "train.schedule=constant",
                "train.warmup_steps=0",
                "train.weight_decay=0",
                "model.rotary.base=1e4",
                "evals.lengths=[512,2048,8192,32768]",
            ),
            ("model.rotary.base=1e6",),
        ),
    ),
)
