"""Configs, run directories, checkpoints, meshes, and metrics.

Five nouns name what a user trains:

    Config   all settings of a run (`ExperimentConfig`)
    Run      a directory with a config, checkpoints, metrics, and results (`RunDirectory`)
    Stage    a part of a run, with rows, a schedule, or positions of its own (`Stage`)
    Sweep    the members that one command trains (`Sweep`)
    Member   one run of a sweep: its name, overrides, and config (`Member`)

from ropewalk.experiment import load
run = load("runs/demo/base=10,num_heads=4")  # run.config, run.params, run.tokenizer, run.table
logits = run.logits("import numpy")   # float32 [B, T, V]
"""

from ropewalk.utils.lazy import lazy

# `--help`, and data's worker processes, import experiment.config and not JAX.
__getattr__ = lazy(__name__, {"load": "loaded"})
