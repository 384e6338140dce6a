"""Experiments of the papers, one file each, at three scales.

The docstring of a file states the question, the commands, the results that would confirm or refute
it, and the published results. Its configs are named after the file: `NAME_cpu` runs in
minutes on two cores, `NAME_gpu` in about ten minutes on one GPU, and `NAME_paper` is the paper's
own. The commands are those of the CPU scale; replace `_cpu` by `_gpu` or `_paper` for the others.
If a paper fine-tunes a released model, its scale starts from `runs/llama2_7b` or `runs/llama3_8b`,
run directories with those parameters, and needs no command that trains a parent.

CONFIG --help prints the cost of all members, and `--check` that of a command; a parent that an
experiment trains comes on top. Results of two CPU cores: `git show c437b09:docs/experiments.md`.
"""
