"""The members of a sweep as one training state: stacked in front, made, restored, taken apart."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiment.checkpoint import Checkpoints, DataState
from experiment.config import ExperimentConfig
from experiment.mesh import put
from experiment.stages import Stage
from model import sharding
from model.positions import position_table, stack_tables
from model.transformer import Params
from training.step import MemberArrays, State, init_state


def stack(trees: Sequence[Any]) -> Any:
    """Members stacked in front; one member is left as it is."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: np.stack(x), *trees)


def member_arrays(stages: Sequence[Stage]) -> MemberArrays:
    """What distinguishes members in a stage, stacked if there are several."""
    configs = [stage.config for stage in stages]
    tables = [position_table(config.model, config.data.context_length) for config in configs]
    rates = [np.float32(config.train.learning_rate) for config in configs]
    return MemberArrays(tables[0] if len(tables) == 1 else stack_tables(tables), stack(rates))


def abstract_state(config: ExperimentConfig, num_members: int, mesh: Mesh) -> State:
    """Shapes, dtypes and shardings of the training state, members stacked in front if several."""
    stacked = num_members > 1
    make_state = lambda seed: init_state(config, seed)  # noqa: E731
    seeds = stack([np.uint32(0)] * num_members)
    state = jax.eval_shape(jax.vmap(make_state) if stacked else make_state, seeds)
    params = sharding.parameter_shardings(config.model, mesh, members=stacked)
    opt_state = sharding.like_parameters(params, state.opt_state, mesh, members=stacked)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        state,
        State(params, opt_state),
    )


def first_state(
    configs: Sequence[ExperimentConfig], shardings: State, params: Params | None
) -> State:
    """The state before the first update: fresh, or with the parameters of another run."""
    make_state = functools.partial(init_state, configs[0])
    make_state = make_state if len(configs) == 1 else jax.vmap(make_state)
    seeds = stack([np.uint32(config.seed) for config in configs])
    # Made where it will lie: no host ever holds parameters that only fit on all devices together.
    state = jax.jit(make_state, out_shardings=shardings)(seeds)
    return state if params is None else state._replace(params=put(params, shardings.params))


def restored_state(
    checkpoints: Sequence[Checkpoints], step: int, config: ExperimentConfig, target: State
) -> tuple[State, DataState]:
    """The state at `step`, as `target` has it: each device reads its own part.

    Members of a sweep are read whole by every host and stacked there: each has its own files.
    """
    if len(checkpoints) == 1:
        *state, data_state = checkpoints[0].restore(step, *target)
        return State(*state), data_state
    one = jax.eval_shape(lambda: init_state(config, jnp.uint32(0)))
    one = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), one)
    restored = [checkpoint.restore(step, *one) for checkpoint in checkpoints]
    members = stack([State(params, opt_state) for params, opt_state, _ in restored])
    return put(members, jax.tree.map(lambda leaf: leaf.sharding, target)), restored[0][2]


def unstack(tree: Any, num_members: int, shardings: Any) -> Iterator[Any]:
    """Each member's part, as a copy: the next step donates the state while a save still reads."""
    if num_members == 1:
        yield jax.tree.map(jnp.copy, tree)
        return
    one = jax.tree.map(lambda x: NamedSharding(x.mesh, PartitionSpec(*x.spec[1:])), shardings)
    # One program per member, waited for: apart, the slices of many arrays may meet in another order
    # on another host, and wait for one another forever.
    for index in range(num_members):
        take = jax.jit(
            lambda tree, index=index: jax.tree.map(lambda x: x[index], tree), out_shardings=one
        )
        yield jax.block_until_ready(take(tree))
