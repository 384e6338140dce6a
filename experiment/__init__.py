"""WHAT a run carries: configuration, run directory, checkpoints, mesh, metrics.

from experiment import load
run = load("runs/demo/base=10,num_heads=4")  # run.config, run.params, run.tokenizer, run.table
logits = run.logits("import numpy")   # float32 [B, T, V]
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    # Late: `--help`, and data's worker processes, import experiment.config and not JAX.
    if name == "load":
        return importlib.import_module("experiment.loaded").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
