"""Checkpoints: orbax items `params`, `opt_state`, `data`, `config`, one directory a step.

`params` is its own item, so that evaluation needs neither the optimizer nor the trainer.
"""

import dataclasses
import logging
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from experiment.config import ExperimentConfig, to_dict
from experiment.run import RunDirectory
from model.transformer import Params, abstract_params

# Orbax narrates every save at INFO and warns of settings that are its own business.
logging.getLogger("absl").setLevel(logging.ERROR)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataState:
    """Which rows a run has consumed. Rows are pure functions of their number: nothing else counts.

    Attributes:
      fingerprint: of the tokenized data.
      rows: consumed so far.
      digest: sum of the rows' hashes modulo 2^64: equal for runs that saw the same rows.
    """

    fingerprint: str
    rows: int = 0
    digest: int = 0


class Checkpoints:
    """Saves and restores the training state of one run. Saving is asynchronous and atomic."""

    def __init__(self, run: RunDirectory, *, keep: int):
        self._run = run
        self._manager = ocp.CheckpointManager(
            run.checkpoints_path.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, create=True, enable_async_checkpointing=True
            ),
        )

    def save(
        self, step: int, params: Params, opt_state: Any, data: DataState, config: ExperimentConfig
    ) -> None:
        """Starts saving `step`; returns once the arrays are copied out of the training state."""
        self._manager.save(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(params),
                opt_state=ocp.args.StandardSave(opt_state),
                data=ocp.args.JsonSave(dataclasses.asdict(data)),
                config=ocp.args.JsonSave(to_dict(config)),
            ),
        )

    def restore(self, step: int, params: Params, opt_state: Any) -> tuple[Params, Any, DataState]:
        """The state at `step`; `params` and `opt_state` give shapes and shardings."""
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(params),
                opt_state=ocp.args.StandardRestore(opt_state),
                data=ocp.args.JsonRestore(),
            ),
        )
        return restored["params"], restored["opt_state"], DataState(**restored["data"])

    def close(self) -> None:
        """Waits until what was saved is on disk."""
        self._manager.wait_until_finished()
        self._manager.close()


def restore_params(run: RunDirectory, step: int | None = None) -> tuple[Params, int]:
    """The parameters of a run as numpy arrays, and their step.

    Args:
      run: the run.
      step: which checkpoint; None means the last.

    Raises:
      ValueError: if there is no such checkpoint, or its shapes are not those of config.json.
    """
    steps = run.steps()
    if not steps:
        raise ValueError(f"{run.path} has no checkpoint; train it first")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise ValueError(f"{run.path} has no checkpoint of step {step}; it has {steps}")
    path = (run.checkpoints_path / str(step) / "params").absolute()
    expected = abstract_params(run.config.model)
    with ocp.StandardCheckpointer() as checkpointer:
        stored = checkpointer.metadata(path).item_metadata.tree
        _check_shapes(run, expected, stored)
        # As numpy: where parameters go is the caller's business, on any number of devices.
        return checkpointer.restore(path, jax.tree.map(_as_numpy, expected)), step


def _as_numpy(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    return np.empty(leaf.shape, leaf.dtype)


def _check_shapes(run: RunDirectory, expected: Params, stored: Params) -> None:
    shapes = {
        jax.tree_util.keystr(path): tuple(leaf.shape)
        for path, leaf in jax.tree_util.tree_flatten_with_path(stored)[0]
    }
    for path, leaf in jax.tree_util.tree_flatten_with_path(expected)[0]:
        name = jax.tree_util.keystr(path)
        if shapes.get(name) != tuple(leaf.shape):
            raise ValueError(
                f"{run.path}: the checkpoint's parameter {name} has shape {shapes.get(name)}, "
                f"but config.json makes a model where it is {tuple(leaf.shape)}"
            )
