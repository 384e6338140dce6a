r"""Su's tables of NTK with mixed bases (2023, kexue.fm/archives/9706): eight times the length.

Question: how much of its accuracy at the trained length does a model keep at eight times that
length, under each way to stretch its frequencies, without any training there?

Commands: train two members, without and with log-n scaling; then evaluate both with seven variants.

    ropewalk sweep su_table1_cpu --workdir runs/su_table1_cpu
    ropewalk evaluate runs/su_table1_cpu --tasks repeated --lengths 128
    ropewalk evaluate runs/su_table1_cpu \
        --rotary "trained,position_interpolation(factor=8),ntk_old(factor=8),\
        ntk_fixed(factor=8),ntk_mixed(factor=8)"
    ropewalk evaluate "runs/su_table1_cpu/rotary=rope(base=1000)" \
        --rotary "ntk_fixed(factor=8,log_n=extrapolate),ntk_mixed(factor=8,log_n=extrapolate)"
    ropewalk report runs/su_table1_cpu

Su's model is a gated attention unit, ours a Llama of its size; his steps are not stated.

Confirms: Su's order. On other text: interpolation < unchanged < NTK <= NTK-fixed <= NTK-mixed, and
each is better with log-n than without. Under NTK, repeated text is predicted better than other
text.

Refuted if: the order differs, by more than the intervals, in a model that copies at its trained
length.

Measured by: repeated (cpu, gpu, paper).

Published: a 100M model trained at 512 tokens; share of correct next tokens at 4096, repeated text /
other text: unchanged 24.17 / 23.16 (49.41 at 512); position interpolation 15.04 / 13.54; NTK 51.28
/ 39.27; NTK-fixed 51.86 / 39.61; NTK-mixed 53.09 / 40.12. Pretrained with log-n scaling, NTK-mixed
gets 68.91 / 45.41 (Table 1); with log-n beyond the trained length only, 59.11 / 42.38 (Table 2).
The post does not state the lag of its repeated text; the task `repeated` has two.
"""

from ropewalk.configs.base_125m import configs as base_125m
from ropewalk.configs.changes import vary
from ropewalk.configs.papers import scales

TASKS = ("repeated", "repeated(lag=trained)", "repeated(lag=half)")

configs = scales.at_each_scale(
    "su_table1",
    "Which stretch keeps next tokens right at eight times the trained length?",
    cpu=dict(
        # As large a share of the pairs is short of a cycle within 128 tokens as in a head of 128
        # features at base 10000 within Su's 512: a little over half.
        model=dict(rotary=dict(base=1000.0)),
        data=dict(
            context_length=128,
            batch_size=16,
            retrieval_fraction=0.5,
            retrieval_tasks=("lagcopy",),  # copying, which text alone teaches later
        ),
        train=dict(num_steps=1000),
        evals=dict(tasks=TASKS, lengths=(1024,)),
        members=vary("model.rotary", ("rope(base=1000)", "rope(base=1000,log_n=train)")),
    ),
    gpu=dict(
        data=dict(
            context_length=512, batch_size=128, retrieval_fraction=0.1, retrieval_tasks=("lagcopy",)
        ),
        train=dict(num_steps=3000),
        evals=dict(tasks=TASKS, lengths=(4096,)),
        members=vary("model.rotary", ("rope(base=1e4)", "rope(base=1e4,log_n=train)")),
    ),
    paper=dict(
        config=base_125m[0],
        data=dict(context_length=512, batch_size=512, retrieval_fraction=0.0),
        train=dict(num_steps=9600),
        evals=dict(tasks=TASKS, lengths=(4096,)),
        members=vary("model.rotary", ("rope(base=1e4)", "rope(base=1e4,log_n=train)")),
    ),
)
