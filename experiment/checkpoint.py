"""Checkpoints: orbax items `params`, `opt_state`, `data`, `config`, `digests`, a folder per step.

`params` is its own item, so that evaluation needs neither the optimizer nor the trainer.

Damage to a checkpoint raises `DamagedCheckpointError`, whose message is one line.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import options
from orbax.checkpoint.checkpoint_managers import preservation_policy

from experiment import distributed
from experiment.config import ExperimentConfig
from experiment.devices import check_platform
from experiment.digest import digests, named
from experiment.items import (
    DamagedCheckpointError,
    check_config,
    config_item,
    data_state,
    digest_item,
    folder_of,
    one_line,
    read_items,
    write_items,
)
from experiment.run import RunDirectory
from model.transformer import Params, abstract_params
from utils.errors import raise_outages
from utils.limits import MOST_JSON, check_file
from utils.paths import in_bucket, remove

# Orbax logs every save, and the traceback of each error that it raises.
logging.getLogger("absl").setLevel(logging.CRITICAL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataState:
    """The rows that a run has consumed. Rows are pure functions of their number.

    Attributes:
      fingerprint: fingerprint of the tokenized data of the stage.
      rows: number of rows consumed in all stages.
      digest: sum of the hashes of the rows modulo 2^64, equal for runs that saw the same rows.
      skipped_in_row: number of updates skipped in a row (`training.step`).
    """

    fingerprint: str
    rows: int = 0
    digest: int = 0
    skipped_in_row: int = 0


def last_good(steps: Sequence[int], diverged: int) -> int | None:
    """Return the newest of `steps` before the first skipped update, number `diverged`; None: none.

    The parameters of step `diverged - 1` already give a loss that is not finite.
    """
    return max((step for step in steps if step + 1 < diverged), default=None)


class _LastGood(preservation_policy.PreservationPolicy):
    """Policy that keeps the last good checkpoint while updates are skipped."""

    diverged: int | None = None  # the first update skipped in a row

    def should_preserve(self, checkpoints, *, context) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        good = None if self.diverged is None else last_good(steps, self.diverged)
        return [step == good for step in steps]


class Checkpoints:
    """Saves and restores the training state of one run. Saving is asynchronous and atomic."""

    def __init__(self, run: RunDirectory, *, keep: int, always: Sequence[int] = ()):
        """Keep the newest `keep` checkpoints, those of the steps `always`, and, while updates are
        skipped, the last good one."""
        self._run, self._last_good = run, _LastGood()
        if in_bucket(run.path) and distributed.is_primary_host():
            _remove_unfinished(run)
        policies = [preservation_policy.LatestN(keep), preservation_policy.CustomSteps(always)]
        self._manager = ocp.CheckpointManager(
            str(run.checkpoints_path.absolute()),
            options=ocp.CheckpointManagerOptions(
                # Of saves that were stopped. In a bucket, orbax fails if a listing is out of date.
                cleanup_tmp_directories=not in_bucket(run.path),
                lightweight_initialize=True,  # reads nothing of checkpoints that are there
                preservation_policy=preservation_policy.AnyPreservationPolicy(
                    [*policies, self._last_good]
                ),
                # Several members save at once; their hosts must not wait for one another's.
                multiprocessing_options=options.MultiprocessingOptions(
                    barrier_sync_key_prefix=run.name
                ),
            ),
        )

    def save(
        self,
        step: int,
        params: Params,
        opt_state: Any,
        data: DataState,
        config: ExperimentConfig,
        metrics: dict[str, Any] | None = None,
    ) -> None:
        """Start saving `step`; return once the arrays are copied out of the training state.

        Args:
          step: number of updates done.
          params: parameters of the model.
          opt_state: state of the optimizer.
          data: rows consumed.
          config: config at `step`; saved with the positional settings of every stage so far.
          metrics: digest of the rows logged up to `step` (`MetricsDigest.record`).
        """
        if self._run.is_complete(step):
            return  # a listing lacked it when this run was resumed; Orbax would remove it first
        arrays = {"params": params, "opt_state": opt_state}
        items = {"data": dataclasses.asdict(data), "config": config_item(self._run, step, config)}
        skipped = data.skipped_in_row
        self._last_good.diverged = step - skipped + 1 if skipped else None
        # Made of what lies on the devices, before anything is written.
        record = digest_item(digests(arrays), items, metrics)
        with raise_outages(self._run.path, writes=True):
            self._manager.save(
                step,
                # One item each: evaluation restores `params` alone, whatever the optimizer was.
                args=ocp.args.Composite(
                    **{name: ocp.args.StandardSave(tree) for name, tree in arrays.items()},
                    **{name: ocp.args.JsonSave(item) for name, item in items.items()},
                    digests=ocp.args.JsonSave(record),
                ),
            )

    def close(self) -> None:
        """Wait until all saves are on disk."""
        with raise_outages(self._run.path, writes=True):
            self._manager.wait_until_finished()
            self._manager.close()


def _remove_unfinished(run: RunDirectory) -> None:
    """Remove checkpoints in a bucket whose saves were stopped.

    A listing may be out of date; the file that marks a checkpoint as complete is read by name.
    """
    for path in run.checkpoints_path.iterdir() if run.checkpoints_path.is_dir() else ():
        if path.name.isdigit() and not run.is_complete(int(path.name)):
            remove(path)


class Restored(NamedTuple):
    """The restored part of a checkpoint.

    Attributes:
      arrays: items by name, `params` and `opt_state`.
      data: rows consumed.
      digests: digest of each array as it was saved.
    """

    arrays: dict[str, Any]
    data: DataState
    digests: dict[str, str]


def restore(run: RunDirectory, step: int, **arrays: Any) -> Restored:
    """Read the checkpoint of `step`; `verify` checks its arrays afterwards.

    Each host reads its own part and does not wait for others.

    Args:
      run: the run.
      step: step of the checkpoint.
      arrays: items `params` and `opt_state`, either or both: arrays with the required shapes, or
        abstract arrays with shapes and shardings.

    Raises:
      DamagedCheckpointError: if it cannot be read, or its JSON differs from what was saved.
    """
    items, recorded = read_items(run, step)
    try:
        data = DataState(**items["data"])
    except TypeError as error:
        raise DamagedCheckpointError(run, step, f"data: {error}") from error
    read = {name: _read_arrays(run, step, name, target) for name, target in arrays.items()}
    return Restored(read, data, recorded)


def verify(run: RunDirectory, step: int, restored: Restored) -> None:
    """Compare arrays with the saved digests; all hosts must call this together.

    Raises:
      DamagedCheckpointError: naming the first array that differs.
    """
    for name, digest in digests(restored.arrays).items():
        if restored.digests.get(name) != digest:
            raise DamagedCheckpointError(run, step, f"{name} is not what was saved")


def restore_params(run: RunDirectory, step: int | None = None) -> tuple[Params, int]:
    """Return the parameters of a run as numpy arrays in their stored dtypes, and their step.

    Args:
      run: the run.
      step: step of the checkpoint; None means the last.

    Raises:
      ValueError: if there is no such checkpoint, it is damaged (the newest intact one is named), or
        config.json is not what it was made with.
    """
    step = run.find_step(step)
    with naming_intact_checkpoint(run, step):
        return _intact_params(run, step), step


def stored_params(run: RunDirectory, step: int) -> Params:
    """Return shapes and dtypes of the parameters in a checkpoint that matches config.json.

    Imported parameters keep their dtypes: float32 would be twice as large, and no better.
    """
    check_config(run, step)
    dtypes = read_items(run, step)[0]["config"].get("dtypes", {})  # of those not in float32

    def stored(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return jax.ShapeDtypeStruct(leaf.shape, jnp.dtype(dtypes.get(name, leaf.dtype)))

    return jax.tree_util.tree_map_with_path(stored, abstract_params(run.config.model))


def _intact_params(run: RunDirectory, step: int) -> Params:
    # As numpy: the caller decides on which devices they go.
    target = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), stored_params(run, step))
    restored = restore(run, step, params=target)
    verify(run, step, restored)
    return restored.arrays["params"]


@contextlib.contextmanager
def naming_intact_checkpoint(run: RunDirectory, step: int) -> Iterator[None]:
    """Add the newest intact checkpoint to the message about a damaged one."""
    try:
        yield
    except DamagedCheckpointError as error:
        for other in reversed([other for other in run.steps() if other != step]):
            with contextlib.suppress(DamagedCheckpointError):
                _intact_params(run, other)
                raise ValueError(
                    f"{run.path}: checkpoint {step} is damaged ({error.what}); take step "
                    f"{other}, the newest whole one, or delete {folder_of(run, step)}"
                ) from error
        raise


def keep_params(source: RunDirectory, step: int, target: RunDirectory) -> None:
    """Save the parameters of a run, rounded to bfloat16, as a checkpoint of one with its config.

    Raises:
      ValueError: as `restore_params` does.
    """
    params, step = restore_params(source, step)
    items, _ = read_items(source, step)
    items["config"].pop("dtypes", None)  # read as float32, whatever the source came as

    def rounded_leaf(path, leaf):
        # Distant positions multiply the rounding of a frequency.
        is_exact = path[-1].key == "frequency_offset"
        return jnp.asarray(leaf, jnp.float32 if is_exact else jnp.bfloat16)

    rounded = jax.tree_util.tree_map_with_path(rounded_leaf, params)
    # Of what is read: orbax makes float32 of it, as `abstract_params` asks.
    read = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rounded)
    path = folder_of(target, step).absolute() / "params"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, rounded)
    # It names folders of this machine; in a bucket it says that the item is whole.
    if not in_bucket(path):
        (path / "commit_success.txt").unlink(missing_ok=True)
    write_items(target, step, items, digests({"params": read}))


def remove_old(run: RunDirectory, step: int, *, keep: int, always: Sequence[int]) -> None:
    """Remove checkpoints up to `step`, an intact one, that `Checkpoints` would have removed.

    Later ones stay: a run that resumes from `step` writes them again.
    """
    steps = [earlier for earlier in run.steps() if earlier <= step]
    skipped = data_state(run, step).get("skipped_in_row", 0)
    good = last_good(steps, step - skipped + 1) if skipped else None
    for earlier in set(steps[:-keep]) - {*always, good}:
        remove(folder_of(run, earlier))


def set_aside(run: RunDirectory, step: int) -> Path:
    """Rename the checkpoint of `step` to make room for a new one; return its new path."""
    folder = folder_of(run, step)
    numbered = (folder.with_name(f"{step}.damaged{end}") for end in ("", *range(2, 100)))
    aside = next(path for path in numbered if not path.exists())
    return folder.rename(aside)


def shape_difference(params: Params, expected: Params) -> str:
    """Describe the first parameter of another shape; empty if there is none."""
    shapes, expected_shapes = (
        {name: tuple(leaf.shape) for name, leaf in named(tree).items()}
        for tree in (params, expected)
    )
    for name in sorted(shapes | expected_shapes):
        shape, other = shapes.get(name, "missing"), expected_shapes.get(name, "missing")
        if shape != other:
            return f"parameter {name} is {shape} but {other}"
    return ""


def _read_arrays(run: RunDirectory, step: int, item: str, target: Any) -> Any:
    path = (folder_of(run, step) / item).absolute()
    # Too little memory on a device says nothing about a file.
    check_platform()
    damage = one_line(run, step, item, names=named(target), but=jax.errors.JaxRuntimeError)
    with damage:
        for file in path.rglob("*"):
            if file.parent.name != "d" and file.is_file():
                check_file(file, MOST_JSON)  # TensorStore reads all of it
        # The handler itself: a checkpointer would wait for hosts that failed to read.
        restore = ocp.StandardCheckpointHandler().restore
        return restore(path, args=ocp.args.StandardRestore(target))  # pyright: ignore
