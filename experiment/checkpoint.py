"""Checkpoints: orbax items `params`, `opt_state`, `data`, `config`, one directory per step.

`params` is its own item, so that evaluation needs neither the optimizer nor the trainer.
"""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import options
from orbax.checkpoint.checkpoint_managers import preservation_policy

from experiment import stages
from experiment.config import ExperimentConfig, to_dict
from experiment.run import RunDirectory, find_start, flatten
from model.transformer import Params, abstract_params

# Orbax narrates every save at INFO and warns of settings that are its own business.
logging.getLogger("absl").setLevel(logging.ERROR)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataState:
    """Which rows a run has consumed. Rows are pure functions of their number: nothing else counts.

    Attributes:
      fingerprint: of the tokenized data, the stage's own.
      rows: consumed so far, in all stages.
      digest: sum of the rows' hashes modulo 2^64: equal for runs that saw the same rows.
      skipped_in_row: updates skipped since the last one that was made (`training.step`).
    """

    fingerprint: str
    rows: int = 0
    digest: int = 0
    skipped_in_row: int = 0


def last_good(steps: Sequence[int], diverged: int) -> int | None:
    """The newest of `steps` that an update was made from, where the `diverged`-th was skipped.

    None if there is none: `diverged - 1` itself is where the loss was first not finite.
    """
    return max((step for step in steps if step + 1 < diverged), default=None)


class _LastGood(preservation_policy.PreservationPolicy):
    """Keeps the last good checkpoint while updates are skipped: the newest ones are all alike."""

    diverged: int | None = None  # the first of the updates that are skipped now

    def should_preserve(self, checkpoints, *, context) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        good = None if self.diverged is None else last_good(steps, self.diverged)
        return [step == good for step in steps]


class Checkpoints:
    """Saves and restores the training state of one run. Saving is asynchronous and atomic."""

    def __init__(self, run: RunDirectory, *, keep: int, always: Sequence[int] = ()):
        """Keeps the newest `keep` checkpoints, those of the steps `always`, and the last good one
        where updates are skipped."""
        self._run, self._last_good = run, _LastGood()
        kept = [preservation_policy.LatestN(keep), preservation_policy.CustomSteps(always)]
        self._manager = ocp.CheckpointManager(
            run.checkpoints_path.absolute(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=preservation_policy.AnyPreservationPolicy(
                    [*kept, self._last_good]
                ),
                # Several members save at once; their hosts must not wait for one another's.
                multiprocessing_options=options.MultiprocessingOptions(
                    barrier_sync_key_prefix=run.name
                ),
            ),
        )

    def save(
        self, step: int, params: Params, opt_state: Any, data: DataState, config: ExperimentConfig
    ) -> None:
        """Starts saving `step`; returns once the arrays are copied out of the training state.

        Args:
          config: in force at `step`; saved with the positional settings of every stage so far.
        """
        record = {
            "stage": stages.at(self._run.config, step).number,
            "positions": self._run.positions_at(step),
            "config": to_dict(config),
        }
        skipped = data.skipped_in_row
        self._last_good.diverged = step - skipped + 1 if skipped else None
        self._manager.save(
            step,
            # One item each: evaluation restores `params` alone, whatever the optimizer was.
            args=ocp.args.Composite(
                params=ocp.args.StandardSave(params),
                opt_state=ocp.args.StandardSave(opt_state),
                data=ocp.args.JsonSave(dataclasses.asdict(data)),
                config=ocp.args.JsonSave(record),
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
    step = run.find_step(step)
    path = (run.checkpoints_path / str(step) / "params").absolute()
    expected = abstract_params(run.config.model)
    with ocp.StandardCheckpointer() as checkpointer:
        stored = checkpointer.metadata(path).item_metadata
        if stored is None:
            raise ValueError(
                f"{run.path}: checkpoint {step} is incomplete; delete {path.parent}, or take "
                "another step"
            )
        if difference := shape_difference(stored.tree, expected):
            raise ValueError(f"{run.path}: of its checkpoint, {difference} by its config.json")
        # As numpy: where parameters go is the caller's business, on any number of devices.
        target = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), expected)
        return checkpointer.restore(path, target), step


def starting_params(config: ExperimentConfig) -> Params:
    """The parameters of the run that `config.start_from` names, as numpy arrays.

    Raises:
      ValueError: if there is no such checkpoint, or it is of a model of other shapes.
    """
    parent, step = find_start(str(config.start_from))
    theirs, ours = abstract_params(parent.config.model), abstract_params(config.model)
    if difference := shape_difference(theirs, ours):
        theirs, ours = flatten(to_dict(parent.config.model)), flatten(to_dict(config.model))
        sizes = " ".join(
            f"model.{name}={str(value).lower()}"
            for name, value in theirs.items()
            if isinstance(value, int) and value != ours.get(name)
        )
        raise ValueError(
            f"start_from={config.start_from}: its {difference} in this config's model; "
            f"give {sizes or 'the sizes that it was trained with'}"
        )
    return restore_params(parent, step)[0]


def shape_difference(params: Params, expected: Params) -> str:
    """The first parameter of another shape, in words; empty if there is none."""
    shapes, expected_shapes = (
        {
            jax.tree_util.keystr(path, simple=True, separator="."): tuple(leaf.shape)
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
        }
        for tree in (params, expected)
    )
    for name in sorted(shapes | expected_shapes):
        shape, other = shapes.get(name, "missing"), expected_shapes.get(name, "missing")
        if shape != other:
            return f"parameter {name} is {shape} but {other}"
    return ""
