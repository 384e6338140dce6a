"""The members of a sweep as one training state: create, and unstack it."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ropewalk.experiment.config import ExperimentConfig, TrainConfig
from ropewalk.model import sharding
from ropewalk.model.transformer import Params, abstract_params
from ropewalk.training import optimizer
from ropewalk.training.programs import StaticConfig, program, stack, static_config
from ropewalk.training.step import State, init_state


def abstract_state(config: ExperimentConfig, num_members: int, mesh: Mesh) -> State:
    """Return shapes, dtypes, and shardings of the training state, stacked if several members."""
    stacked = num_members > 1
    state = jax.eval_shape(_init(config, num_members), stack([np.uint32(0)] * num_members))
    params = sharding.parameter_shardings(config.model, mesh, members=stacked)
    replicated: Any = sharding.replicated(mesh, members=stacked)
    opt_state = optimizer.state_shardings(
        optimizer.make_optimizer(config.train), state.opt_state, state.params, params, replicated
    )
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        state,
        State(params, opt_state, replicated),
    )


def state_bytes(config: ExperimentConfig) -> int:
    """Return the bytes of the parameters and optimizer state of one member."""
    shapes = abstract_params(config.model)
    state = jax.eval_shape(optimizer.make_optimizer(config.train).init, shapes)
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((shapes, state)))


def first_state(
    configs: Sequence[ExperimentConfig], shardings: State, params: Params | None = None
) -> State:
    """Return the state before the first update.

    Args:
      configs: one per member.
      shardings: shardings of the state.
      params: parameters of other runs to start from, stacked; None: fresh ones.
    """
    seeds = stack([np.uint32(config.seed) for config in configs])
    # Create the state in its shards: no host needs memory for all parameters.
    first = static_config(configs[0])
    # With level 1, initializing `demo` compiles in 2.2 s instead of 6.7 s, with the same numbers.
    make_state = program(_init, first, len(configs), out_shardings=shardings, cpu_level=1)
    state = make_state(seeds)
    return state if params is None else state._replace(params=params)


def _init(config: StaticConfig | ExperimentConfig, num_members: int) -> Callable[[Any], State]:
    make_state = functools.partial(init_state, config)
    return make_state if num_members == 1 else jax.vmap(make_state)


def shardings_of(target: State) -> State:
    """Return the shardings of an abstract state."""
    return jax.tree.map(lambda leaf: leaf.sharding, target)


def with_fresh_moments(
    state: State, config: ExperimentConfig, num_members: int, shardings: State
) -> State:
    """Return the state at the start of a stage: its parameters and a fresh optimizer state."""
    init = program(_moments, config.train, num_members, out_shardings=shardings.opt_state)
    return state._replace(opt_state=init(state.params))


def _moments(config: TrainConfig, num_members: int) -> Callable[[Params], Any]:
    init = optimizer.make_optimizer(config).init
    return init if num_members == 1 else jax.vmap(init)


def unstack(tree: Any, num_members: int, shardings: Any) -> Iterator[Any]:
    """Yield a copy of each member: the next step donates the state while a save still reads it."""
    if num_members == 1:
        yield jax.tree.map(jnp.copy, tree)
        return
    if jax.process_count() == 1 and jax.default_backend() == "cpu":
        host_tree = jax.device_get(tree)  # host memory already: no program needs to be compiled
        for index in range(num_members):
            yield jax.tree.map(lambda x, index=index: x[index].copy(), host_tree)
        return
    member_shardings = jax.tree.map(
        lambda x: NamedSharding(x.mesh, PartitionSpec(*x.spec[1:])), shardings
    )
    # Run one program per member and wait for it. Otherwise hosts could run the slices in different
    # orders and deadlock.
    for index in range(num_members):
        yield jax.block_until_ready(program(_take, index, out_shardings=member_shardings)(tree))


def _take(index: int) -> Callable[[Any], Any]:
    return lambda tree: jax.tree.map(lambda x: x[index], tree)
