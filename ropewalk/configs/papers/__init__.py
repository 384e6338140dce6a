"""Experiments of the papers, one file each, at three scales.

The docstring of a file states the question, the commands, the cost, the results that would confirm
or refute it, and the published results. Its configs are named after the file: `NAME_cpu` runs in
minutes on two cores, `NAME_gpu` in about ten minutes on one GPU, and `NAME_paper` is the paper's
own. The commands are those of the CPU scale; replace `_cpu` by `_gpu` or `_paper` for the others.
If a paper fine-tunes a released model, its scale starts from `runs/llama2_7b` or `runs/llama3_8b`,
run directories with those parameters, and needs no command that trains a parent.

Costs are FLOPs of training, counted by `experiment.metrics.flops_per_token`, of all members and of
the parent that an experiment trains. Minutes assume 1.1e11 FLOP/s on two CPU cores, as
`configs/small.py` reaches, 10% of an H100's 989e12 FLOP/s for the GPU scale, and 40% for the
papers' scale. Results of two CPU cores: `git show c437b09:docs/experiments.md`.
"""
