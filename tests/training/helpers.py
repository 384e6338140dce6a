"""Read and compare the metrics, rows and arrays that runs leave in their directories."""

import json
import socket
from pathlib import Path

import jax
import numpy as np

from ropewalk.experiment.checkpoint import restore_params
from ropewalk.experiment.run import RunDirectory

# XLA compiles the length and the kind of a schedule into a step: tests with one of these changes
# share the programs of `tiny`, for one member and for two.
NINE = ("train.num_steps=9", "train.max_skipped=3")
CONSTANT = ("train.schedule=constant", "train.warmup_steps=0")
TIMING = {"seconds", "tokens_per_second", "mfu"}


def rows_without_times(run: RunDirectory | Path) -> list[dict]:
    """Rows of metrics.jsonl without the fields that depend on the clock."""
    path = run if isinstance(run, Path) else run.path
    rows = RunDirectory(path).read_metrics()
    return [{k: v for k, v in row.items() if k not in TIMING} for row in rows]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in RunDirectory(run).read_metrics()]


def data_state(run: RunDirectory | Path, step: int | None = None) -> dict:
    """The rows that led to a checkpoint, by default the newest."""
    run = RunDirectory(run) if isinstance(run, Path) else run
    return json.loads((run.checkpoints_path / f"{run.find_step(step)}/data/metadata").read_text())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def assert_same_run(first: Path, second: Path) -> None:
    """Bit-identical parameters, metrics, optimizer state and row digest."""
    assert rows_without_times(first) == rows_without_times(second)
    params, step = restore_params(RunDirectory(first))
    other_params, other_step = restore_params(RunDirectory(second))
    assert step == other_step
    jax.tree.map(np.testing.assert_array_equal, params, other_params)
    assert data_state(first) == data_state(second) and data_state(first)["digest"] != 0
