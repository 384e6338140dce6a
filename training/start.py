"""Parameters of the runs named by `start_from`, sharded like the training state."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiment import checkpoint
from experiment.checkpoint import naming_intact_checkpoint, restore_params, shape_difference
from experiment.config import ExperimentConfig, to_dict
from experiment.distributed import refusing_together
from experiment.mesh import put
from experiment.run import RunDirectory, find_start, flatten
from model import sharding
from model.transformer import Params, abstract_params


def starting_params(configs: Sequence[ExperimentConfig], mesh: Mesh) -> Params:
    """Return the parameters of the runs that `start_from` names, float32, stacked over members.

    For a single run, each device reads only its own shard, in the saved dtype, because one host may
    not have memory for all parameters. All processes must call this together.

    Raises:
      ValueError: in all processes, if there is no such checkpoint, it is damaged, or its model
        has other shapes.
    """
    with refusing_together():
        parents = [find_matching_start(config) for config in configs]
    where = sharding.parameter_shardings(configs[0].model, mesh, members=len(configs) > 1)
    if len(configs) == 1:
        return _restore_sharded(*parents[0], where)
    # Members are small: the host stacks them.
    with refusing_together():
        members_params = [restore_params(*parent)[0] for parent in parents]
    float32_params = [_in_float32(params, np.asarray) for params in members_params]
    return put(jax.tree.map(lambda *members: np.stack(members), *float32_params), where)


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
            f"set {sizes or 'the sizes that it was trained with'}"
        )
    return parent, step


def _restore_sharded(run: RunDirectory, step: int, where: Params) -> Params:
    with refusing_together(), naming_intact_checkpoint(run, step):
        target = jax.tree.map(
            lambda x, sharding_: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding_),
            checkpoint.stored_params(run, step),
            where,
        )
        restored = checkpoint.restore(run, step, params=target)
    # All processes verify together, so all of them must have read first.
    with refusing_together(), naming_intact_checkpoint(run, step):
        checkpoint.verify(run, step, restored)
    return _in_float32(restored.arrays.pop("params"), jnp.asarray)


def _in_float32(params: Params, array: Callable) -> Params:
    """Convert the parameters to float32, one array at a time to bound the peak memory."""
    leaves, tree = jax.tree.flatten(params)
    del params
    for i in range(len(leaves)):
        leaves[i] = array(leaves[i], np.float32)
    return jax.tree.unflatten(tree, leaves)
