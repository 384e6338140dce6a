"""Checkpoints: orbax items `params`, `opt_state`, `data`, `config`, `digests`, a folder per step.

`params` is its own item, so that evaluation needs neither the optimizer nor the trainer.

Damage to a checkpoint raises `DamagedCheckpointError`, whose message is one line.
"""

import contextlib
import dataclasses
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import options
from orbax.checkpoint.checkpoint_managers import preservation_policy

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
    stored_dtypes,
    write_items,
)
from experiment.run import RunDirectory
from model.transformer import Params, abstract_params
from utils.paths import in_bucket, raise_outages, remove

# Orbax narrates every save at INFO and warns of settings that are its own business. What fails in
# its threads it logs with a traceback and raises: it is said once, by whoever catches it.
_absl = logging.getLogger("absl")
_absl.setLevel(logging.ERROR)
_absl.addFilter(lambda record: "/orbax/" not in record.pathname)


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
        policies = [preservation_policy.LatestN(keep), preservation_policy.CustomSteps(always)]
        self._manager = ocp.CheckpointManager(
            str(run.checkpoints_path.absolute()),
            options=ocp.CheckpointManagerOptions(
                cleanup_tmp_directories=True,  # of saves that were stopped
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
        """Starts saving `step`; returns once the arrays are copied out of the training state.

        Args:
          step: updates done.
          params: of the model.
          opt_state: of the optimizer.
          data: rows consumed.
          config: in force at `step`; saved with the positional settings of every stage so far.
          metrics: digest of the rows logged up to `step` (`MetricsDigest.record`).
        """
        arrays = {"params": params, "opt_state": opt_state}
        items = {"data": dataclasses.asdict(data), "config": config_item(self._run, step, config)}
        skipped = data.skipped_in_row
        self._last_good.diverged = step - skipped + 1 if skipped else None
        # Made of what lies on the devices, before anything is written.
        record = digest_item(digests(arrays), items, metrics)
        with raise_outages(self._run.path):
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
        """Waits until what was saved is on disk."""
        with raise_outages(self._run.path):
            self._manager.wait_until_finished()
            self._manager.close()


class Restored(NamedTuple):
    """The part of a checkpoint that was read.

    Attributes:
      arrays: item `params`, and `opt_state` if it was asked for.
      data: which rows had been consumed.
      digests: of each array as it was saved.
    """

    arrays: dict[str, Any]
    data: DataState
    digests: dict[str, str]


def restore(run: RunDirectory, step: int, **arrays: Any) -> Restored:
    """Reads the checkpoint of `step`; its arrays are as they lie on the disk until `verify`.

    Several hosts read each their own part, and none waits for another.

    Args:
      run: the run.
      step: of the checkpoint.
      arrays: items `params` and `opt_state`, either or both, as arrays or abstract ones with the
        shapes and shardings wanted.

    Raises:
      DamagedCheckpointError: if it cannot be read, or its JSON is not what was saved.
    """
    items, recorded = read_items(run, step)
    try:
        data = DataState(**items["data"])
    except TypeError as error:
        raise DamagedCheckpointError(run, step, f"data: {error}") from error
    read = {name: _read_arrays(run, step, name, target) for name, target in arrays.items()}
    return Restored(read, data, recorded)


def verify(run: RunDirectory, step: int, restored: Restored) -> None:
    """Compares arrays with what was saved; several hosts must do so together.

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
    dtypes = stored_dtypes(read_items(run, step)[0])

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
    """The parameters of one run, rounded to bfloat16, as a checkpoint of another of its config.

    Raises:
      ValueError: as `restore_params` does.
    """
    params, step = restore_params(source, step)
    items, _ = read_items(source, step)
    items["config"].pop("dtypes", None)  # read as float32, whatever the source came as
    rounded = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
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
    """Removes what `Checkpoints` would have, had it not been stopped; the one of `step` is whole.

    Later ones are left: a run that goes on from `step` comes to them again.
    """
    steps = [earlier for earlier in run.steps() if earlier <= step]
    skipped = data_state(run, step).get("skipped_in_row", 0)
    good = last_good(steps, step - skipped + 1) if skipped else None
    for earlier in set(steps[:-keep]) - {*always, good}:
        remove(folder_of(run, earlier))


def set_aside(run: RunDirectory, step: int) -> Path:
    """Takes the checkpoint of `step` out of the way of a new one; returns where it lies now."""
    folder = folder_of(run, step)
    numbered = (folder.with_name(f"{step}.damaged{end}") for end in ("", *range(2, 100)))
    aside = next(path for path in numbered if not path.exists())
    return folder.rename(aside)


def shape_difference(params: Params, expected: Params) -> str:
    """The first parameter of another shape, in words; empty if there is none."""
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
    with damage, _quiet_stragglers():
        # The handler itself: a checkpointer would wait for hosts that failed to read.
        restore = ocp.StandardCheckpointHandler().restore
        return restore(path, args=ocp.args.StandardRestore(target))  # pyright: ignore


@contextlib.contextmanager
def _quiet_stragglers() -> Iterator[None]:
    """Keeps TensorStore from printing a traceback for each read that outlives a failed one.

    Orbax reads all arrays at once in an event loop and closes it when one fails; what the others
    have read finds it closed, at any time after.
    """
    before = sys.unraisablehook

    def quiet(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = quiet
    yield
    # Not if it failed: stragglers are still to come.
    sys.unraisablehook = before
