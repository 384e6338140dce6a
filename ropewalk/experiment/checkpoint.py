"""Checkpoints: orbax items `params`, `opt_state`, `data`, `config`, `digests`, a folder per step.

`params` is its own item, so that evaluation needs neither the optimizer nor the trainer.
Damage to a checkpoint raises `DamagedCheckpointError`, whose message is one line.

The digest of an array has 64 bits, of its raw bits and their positions, equal on any mesh. Each
word is mixed with its position and all are added up, modulo 2^32 in each of two lanes. A sum does
not depend on the order, so devices and hosts add their own parts. The mixing is a bijection of the
word, so that any one changed word changes the sum; without it (words times odd numbers, say) the
sign bits of two words could be flipped unseen.
"""

import contextlib
import dataclasses
import logging
import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util
from orbax.checkpoint import options

from ropewalk.experiment import distributed
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.devices import check_platform
from ropewalk.experiment.items import (
    DamagedCheckpointError,
    check_config,
    config_item,
    digest_item,
    folder_of,
    one_line,
    read_items,
    write_items,
)
from ropewalk.experiment.run import RunDirectory
from ropewalk.model.transformer import Params, abstract_params
from ropewalk.utils.errors import raise_outages
from ropewalk.utils.limits import MAX_JSON, check_file
from ropewalk.utils.paths import in_bucket, remove

# Orbax logs every save, and the traceback of each error that it raises. Of several arrays that it
# cannot read it raises the error of one; asyncio logs those of the others later.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataState:
    """The rows that a run has consumed. Rows are pure functions of their number.

    Attributes:
      fingerprint: fingerprint of the tokenized data of the stage.
      rows: number of rows consumed in all stages.
      digest: sum of the hashes of the rows modulo 2^64, equal for runs that saw the same rows.
      skipped_in_row: number of updates skipped in a row (`training.step`).
      validation: fields of `training.progress.Progress`; empty without evaluations that count.
    """

    fingerprint: str
    rows: int = 0
    digest: int = 0
    skipped_in_row: int = 0
    validation: dict[str, Any] = dataclasses.field(default_factory=dict)


def last_good(steps: Sequence[int], diverged: int) -> int | None:
    """Return the newest of `steps` before the first skipped update, number `diverged`; None: none.

    The parameters of step `diverged - 1` already give a loss that is not finite.
    """
    return max((step for step in steps if step + 1 < diverged), default=None)


# Suffix of a checkpoint past the step at which its run was resumed, until the run has passed it.
AHEAD = "ahead"


class Checkpoints:
    """Saves and restores the training state of one run. Saving is asynchronous and atomic."""

    def __init__(self, run: RunDirectory, *, keep: int, always: Sequence[int] = ()):
        """`remove_old` keeps the newest `keep` checkpoints, and those of the steps `always`."""
        self._run, self._keep, self._always = run, keep, always
        if distributed.is_primary_host():
            _remove_unfinished(run)
        self._manager = ocp.CheckpointManager(
            str(run.checkpoints_path.absolute()),
            options=ocp.CheckpointManagerOptions(
                # Of saves that were stopped; in a bucket `_remove_unfinished` removes them.
                cleanup_tmp_directories=not in_bucket(run.path),
                lightweight_initialize=True,  # reads nothing of checkpoints that are there
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

        Raises ValueError if orbax does not save: it refuses steps before its newest.

        Args:
          step: number of updates done.
          params: parameters of the model.
          opt_state: state of the optimizer.
          data: rows consumed.
          config: config at `step`; saved with the positional settings of every stage so far.
          metrics: digest of the rows logged up to `step` (`MetricsDigest.record`).
        """
        arrays = {"params": params, "opt_state": opt_state}
        items = {"data": dataclasses.asdict(data), "config": config_item(self._run, step, config)}
        # Made of what lies on the devices, before anything is written.
        record = digest_item(digests(arrays), items, metrics)
        with raise_outages(self._run.path, writes=True):
            is_saved = self._manager.save(
                step,
                # One item each: evaluation restores `params` alone, whatever the optimizer was.
                args=ocp.args.Composite(
                    **{name: ocp.args.StandardSave(tree) for name, tree in arrays.items()},
                    **{name: ocp.args.JsonSave(item) for name, item in items.items()},
                    digests=ocp.args.JsonSave(record),
                ),
            )
        if not is_saved:
            raise ValueError(
                f"{folder_of(self._run, step)} was not saved, because a checkpoint of that step or "
                "a later one has appeared; run the same command again"
            )

    def close(self) -> None:
        """Wait until all saves are on disk."""
        with raise_outages(self._run.path, writes=True):
            self._manager.wait_until_finished()
            self._manager.close()

    def remove_old(
        self, complete: Sequence[int], step: int, skipped: int = 0, best: Collection[int] = ()
    ) -> None:
        """Remove checkpoints that are not kept; only the primary host calls it.

        Args:
          complete: steps at which all members that train together have a checkpoint, ascending.
            Members save one after another, so that each has checkpoints that others lack.
          step: number of updates done.
          skipped: updates skipped in a row at `step`; if any, the last good checkpoint is kept too.
          best: further steps to keep.
        """
        good = last_good(complete, step - skipped + 1) if skipped else None
        with raise_outages(self._run.path, writes=True):
            first_kept = complete[-self._keep] if len(complete) >= self._keep else 0
            for earlier in set(self._run.steps()) - {*self._always, *best, good}:
                if earlier < first_kept:  # also a former best, which other members lack
                    remove(folder_of(self._run, earlier))
            for aside in self._run.checkpoints_path.glob(f"*.{AHEAD}"):
                if int(aside.name.partition(".")[0]) <= max(complete, default=0):
                    remove(aside)


def _remove_unfinished(run: RunDirectory) -> None:
    """Finish removals that were stopped; in a bucket, also remove checkpoints whose saves were."""
    for path in run.checkpoints_path.iterdir() if run.checkpoints_path.is_dir() else ():
        if path.name.endswith(".deleted"):
            shutil.rmtree(path)
        elif in_bucket(path) and path.name.isdigit() and not run.is_complete(int(path.name)):
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


def verify(run: RunDirectory, step: int, arrays: Any, recorded: Mapping[str, str]) -> None:
    """Compare arrays with their digests when saved; all hosts must call this together.

    Raises:
      DamagedCheckpointError: naming the first array that differs.
    """
    for name, digest in digests(arrays).items():
        if recorded.get(name) != digest:
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
    dtypes = check_config(run, step).get("dtypes", {})  # of those not in float32

    def stored(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return jax.ShapeDtypeStruct(leaf.shape, jnp.dtype(dtypes.get(name, leaf.dtype)))

    return jax.tree_util.tree_map_with_path(stored, abstract_params(run.config.model))


def _intact_params(run: RunDirectory, step: int) -> Params:
    # As numpy: the caller decides on which devices they go.
    target = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), stored_params(run, step))
    restored = restore(run, step, params=target)
    verify(run, step, restored.arrays, restored.digests)
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


def set_aside(run: RunDirectory, step: int, reason: str) -> Path:
    """Rename the checkpoint of `step` to make room for a new one; return its new path."""
    folder = folder_of(run, step)
    aside = folder.with_name(f"{step}.{reason}")
    if reason == AHEAD and aside.exists():
        remove(aside)
    while aside.exists():
        aside = aside.with_name(f"{aside.name}.again")
    return folder.rename(aside)


def shape_difference(params: Params, expected: Params) -> str:
    """Describe the first parameter of another shape; empty if there is none."""
    ours, theirs = leaves_by_name(params), leaves_by_name(expected)
    for name in sorted(ours | theirs):
        shape, other = (getattr(tree.get(name), "shape", "missing") for tree in (ours, theirs))
        if shape != other:
            return f"parameter {name} is {shape} but {other}"
    return ""


def _read_arrays(
    run: RunDirectory, step: int, item: str, target: Any, *, partial: bool = False
) -> Any:
    """Return an item, or with `partial` some of its arrays."""
    path = (folder_of(run, step) / item).absolute()
    # Too little memory on a device says nothing about a file.
    check_platform()
    damage = one_line(run, step, item, names=leaves_by_name(target), but=jax.errors.JaxRuntimeError)
    with damage:
        for file in path.rglob("*"):
            if not file.is_dir():  # TensorStore reads all of those that hold no arrays
                check_file(file, math.inf if file.parent.name == "d" else MAX_JSON)
        # The handler itself: a checkpointer would wait for hosts that failed to read.
        arguments = ocp.args.PyTreeRestore(
            item=target,
            restore_args=ocp.checkpoint_utils.construct_restore_args(target),
            partial_restore=partial,
        )
        return ocp.PyTreeCheckpointHandler().restore(path, args=arguments)  # pyright: ignore


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of leaves by name, with dots between levels."""
    return traverse_util.unflatten_dict(dict(leaves), sep=".")


class StoredParams:
    """The arrays of a checkpoint's item `params`, read one at a time: memory holds one of them.

    Attributes:
      run, step: which checkpoint.
      known: stored shape and dtype of each array by name.

    Raises:
      ValueError: if there is no such checkpoint, or config.json is not what it was made with.
    """

    def __init__(self, run: RunDirectory, step: int | None = None):
        self.run, self.step = run, run.find_step(step)
        check_platform()
        self.known = leaves_by_name(stored_params(run, self.step))
        self._digests = read_items(run, self.step)[1]

    def read(self, name: str) -> np.ndarray:
        """Read one array. Raises DamagedCheckpointError if it differs from what was saved."""
        known = self.known[name]
        target = nested({name: np.empty(known.shape, known.dtype)})
        tree = _read_arrays(self.run, self.step, "params", target, partial=True)
        verify(self.run, self.step, {"params": tree}, self._digests)
        return leaves_by_name(tree)[name]


def write_params(
    run: RunDirectory, step: int, arrays: Iterator[tuple[str, np.ndarray]], names: Sequence[str]
) -> None:
    """Write a checkpoint without an optimizer; arrays keep their dtypes.

    Args:
      run: run with a config.json.
      step: step of the checkpoint.
      arrays: arrays by name; each is made after the one before it is written.
      names: names of all parameters of the model.
    """
    # Imported here: only this part of orbax writes a checkpoint array by array.
    from orbax.checkpoint.experimental.v1 import partial

    path = folder_of(run, step).absolute() / "params"
    path.parent.mkdir(parents=True)
    written: dict[str, str] = {}
    dtypes: dict[str, str] = {}
    for name, array in arrays:
        tree = nested({name: array})
        written |= digests({"params": tree})
        dtypes[name] = array.dtype.name
        partial.save(str(path), tree)
        del array, tree
    if sorted(dtypes) != sorted(names):
        raise ValueError(
            f"parameters that differ from the model's: {sorted(dtypes.keys() ^ {*names})}"
        )
    partial.finalize(str(path))
    # This API of orbax adds a folder; its content is the item as orbax usually writes it.
    state = path.with_name("params.whole")
    os.rename(path / "state", state)
    shutil.rmtree(path)
    os.rename(state, path)
    other_dtypes = {name: kind for name, kind in dtypes.items() if kind != "float32"}
    config = config_item(run, step, run.config_at(step)) | {"dtypes": other_dtypes}
    data = dataclasses.asdict(DataState(fingerprint=""))
    write_items(run, step, {"data": data, "config": config}, written)


# The golden ratio, which spreads positions.
_SPREAD = np.uint32(0x9E3779B9)


def leaves_by_name(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by name, with dots between levels."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def digests(tree: Any) -> dict[str, str]:
    """Return the digest of each array in `tree` by name, 16 hexadecimal digits.

    All hosts must call this together for arrays over several hosts. Arrays in host memory are sent
    to the default device one by one.
    """
    sums = {name: jax.device_get(_sum(array)) for name, array in leaves_by_name(tree).items()}
    return {name: f"{first:08x}{second:08x}" for name, (first, second) in sums.items()}


@jax.jit
def _sum(array: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return both lanes, uint32."""
    # https://github.com/skeeto/hash-prospector, then MurmurHash3's finalizer on top.
    first = _mix(_words(array) ^ _positions(array.shape) * _SPREAD, 0x21F0AAAD, 0xD35A2D97)
    second = _mix(first, 0x85EBCA6B, 0xC2B2AE35)
    zero = np.uint32(0)

    def add(left, right):
        return left[0] + right[0], left[1] + right[1]

    # Both sums in one pass over the words, none of which is written to memory.
    return jax.lax.reduce((first, second), (zero, zero), add, tuple(range(array.ndim)))


def _mix(bits: jax.Array, odd: int, other_odd: int) -> jax.Array:
    """Apply a bijection of 32 bits in which each bit depends on all."""
    bits = (bits ^ bits >> 16) * np.uint32(odd)
    bits = (bits ^ bits >> 15) * np.uint32(other_odd)
    return bits ^ bits >> 15


def _words(array: jax.Array) -> jax.Array:
    """Return the raw bits as uint32."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[array.dtype.itemsize]
    return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)


def _positions(shape: Sequence[int]) -> jax.Array:
    """Number the elements of the whole array, row by row, modulo 2^32."""
    positions = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = np.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        positions = positions + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    return positions
