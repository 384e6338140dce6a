"""Parameters of other runs to start from (`start_from`), laid out as the training state is."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiment import checkpoint
from experiment.checkpoint import restore_params, shape_difference
from experiment.config import ExperimentConfig, to_dict
from experiment.distributed import refusing_together
from experiment.items import DamagedCheckpointError, read_items, stored_dtypes
from experiment.mesh import put
from experiment.run import RunDirectory, find_start, flatten
from model import sharding
from model.transformer import Params, abstract_params


def starting_params(configs: Sequence[ExperimentConfig], mesh: Mesh) -> Params:
    """Of the runs that `start_from` names, in float32, members stacked in front if several.

    Of a single run, each device reads its own part only, in the dtype that was saved: what fits on
    all devices together may be more than one host holds. All processes must call this together.

    Raises:
      ValueError: in all processes, if there is no such checkpoint, it is damaged or of a model of
        other shapes.
    """
    with refusing_together():
        parents = [find_matching_start(config) for config in configs]
    where = sharding.parameter_shardings(configs[0].model, mesh, members=len(configs) > 1)
    if len(configs) == 1:
        return _in_parts(*parents[0], where)
    # Those of members are small, and stacked where they are whole.
    with refusing_together():
        found = [restore_params(*parent)[0] for parent in parents]
    whole = [_in_float32(params, np.asarray) for params in found]
    return put(jax.tree.map(lambda *members: np.stack(members), *whole), where)


def find_matching_start(config: ExperimentConfig) -> tuple[RunDirectory, int]:
    """Return the run and the step that `config.start_from` names.

    Raises:
      ValueError: if there is no such checkpoint, or its parameters have other shapes.
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
    return parent, step


def _in_parts(run: RunDirectory, step: int, where: Params) -> Params:
    with refusing_together(), _naming_a_whole_one(run, step):
        checkpoint.check_config(run, step)
        dtypes = stored_dtypes(read_items(run, step)[0])

        def part(path, leaf, place):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return jax.ShapeDtypeStruct(leaf.shape, dtypes.get(name, leaf.dtype), sharding=place)

        shapes = abstract_params(run.config.model)
        target = jax.tree_util.tree_map_with_path(part, shapes, where)
        restored = checkpoint.restore(run, step, params=target)
    # Compared by all processes together, so only once all of them could read.
    with refusing_together(), _naming_a_whole_one(run, step):
        checkpoint.verify(run, step, restored)
    return _in_float32(restored.arrays.pop("params"), jnp.asarray)


@contextlib.contextmanager
def _naming_a_whole_one(run: RunDirectory, step: int) -> Iterator[None]:
    try:
        yield
    except DamagedCheckpointError:
        restore_params(run, step)  # fails likewise, and says which one is whole
        raise


def _in_float32(params: Params, array: Callable) -> Params:
    """What is trained is float32, whatever it came as; one array at a time, for there are many."""
    leaves, tree = jax.tree.flatten(params)
    del params
    for i in range(len(leaves)):
        leaves[i] = array(leaves[i], np.float32)
    return jax.tree.unflatten(tree, leaves)
