"""The papers' experiments, one file each: what was found by whom, and three scales to see it at.

A file's docstring has the commands, the cost and what would confirm; its cards are called after the
file: `NAME_cpu` runs in minutes on two cores, `NAME_gpu` in about ten minutes on one GPU,
`NAME_paper` is the paper's own. The commands are those of the CPU scale; write `_gpu` or `_paper`
for `_cpu` for the others. Where a paper fine-tunes a released model, its scale starts from
`runs/llama2_7b` or `runs/llama3_8b`, run directories with those parameters, and the command that
trains a parent falls away.

Costs are FLOPs of training, counted as `experiment.metrics.flops_per_token` does (all members and
the parent that a card trains). Minutes follow from 1.1e11 FLOP/s on two CPU cores, which is what
`configs/small.py` reaches, and from an assumed 10% of an H100's 989e12 for models of this size on a
GPU and 40% for the papers'; only results in `docs/experiments.md` are measured.
"""
