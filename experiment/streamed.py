"""The parameters of a checkpoint, read and written one array at a time, for large models.

Orbax does the reading and writing, so such a checkpoint is like any other. Memory holds one array,
and orbax's copy of it.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from experiment.checkpoint import DataState, stored_params
from experiment.devices import check_platform
from experiment.digest import digests, named
from experiment.items import (
    DamagedCheckpointError,
    config_item,
    folder_of,
    one_line,
    read_items,
    write_items,
)
from experiment.run import RunDirectory


def nested(name: str, leaf: Any) -> dict[str, Any]:
    """Return a tree of one leaf from its name, with dots between levels."""
    head, _, rest = name.partition(".")
    return {head: nested(rest, leaf) if rest else leaf}


def put(tree: dict[str, Any], name: str, leaf: Any) -> None:
    """Add one leaf to a tree, by its name with dots between levels."""
    new = nested(name, leaf)
    while (key := next(iter(new))) in tree:
        tree, new = tree[key], new[key]
    tree |= new


class StoredParams:
    """The arrays of a checkpoint's item `params`.

    Attributes:
      run, step: which checkpoint.
      known: stored shape and dtype of each array by name.

    Raises:
      ValueError: if there is no such checkpoint, or config.json is not what it was made with.
    """

    def __init__(self, run: RunDirectory, step: int | None = None):
        self.run, self.step = run, run.find_step(step)
        check_platform()
        self.known = named(stored_params(run, self.step))
        self._digests = read_items(run, self.step)[1]

    def read(self, name: str) -> np.ndarray:
        """Read one array. Raises DamagedCheckpointError if it differs from what was saved."""
        known = self.known[name]
        target = nested(name, np.empty(known.shape, known.dtype))
        arguments = ocp.args.PyTreeRestore(
            item=target,
            restore_args=ocp.checkpoint_utils.construct_restore_args(target),
            partial_restore=True,
        )
        path = (folder_of(self.run, self.step) / "params").absolute()
        damage = one_line(
            self.run, self.step, "params", names=[name], but=jax.errors.JaxRuntimeError
        )
        with damage:
            tree = ocp.PyTreeCheckpointHandler().restore(path, args=arguments)  # pyright: ignore
        for array_name, digest in digests({"params": tree}).items():
            if self._digests.get(array_name) != digest:
                what = f"{array_name} is not what was saved"
                raise DamagedCheckpointError(self.run, self.step, what)
        return named(tree)[name]


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
        written |= digests({"params": nested(name, array)})
        dtypes[name] = array.dtype.name
        partial.save(str(path), nested(name, array))
        del array
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
