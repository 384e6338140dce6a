"""The members of a sweep as one training state: stacked in front, made, restored, taken apart."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiment.checkpoint import Checkpoints, DataState
from experiment.config import ExperimentConfig, TrainConfig
from experiment.mesh import put
from experiment.stages import Stage, at
from model import sharding
from model.positions import position_table, stack_tables
from model.transformer import Params
from training import optimizer
from training.plan import Plan
from training.programs import program, program_of
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
    rest = (state.opt_state, state.skipped)
    opt_state, skipped = sharding.like_parameters(params, rest, mesh, members=stacked)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        state,
        State(params, opt_state, skipped),
    )


def open_state(plan: Plan, target: State) -> tuple[list[Checkpoints], State, DataState]:
    """Each member's checkpoints, and the state to go on from: the first one, or restored.

    Args:
      plan: of the run.
      target: shapes, dtypes and shardings of the state: each device reads its own part.

    Raises:
      ValueError: if the run was trained on other data.
    """
    config, step, shardings = plan.configs[0], plan.start_step, shardings_of(target)
    state, data_state = None, DataState(fingerprint=plan.data[0].fingerprint)
    if step == 0:
        state = first_state(plan.configs, shardings, plan.params)
    # A stage's end is kept whatever comes after: it is a result, and other runs start from it.
    ends = [stage.end for stage, *_ in plan.stages]
    checkpoints = [Checkpoints(run, keep=config.train.keep, always=ends) for run in plan.runs]
    if state is not None:
        return checkpoints, state, data_state
    if len(checkpoints) == 1:
        params, opt_state, data_state = checkpoints[0].restore(
            step, target.params, target.opt_state
        )
        skipped = put(np.int32(data_state.skipped_in_row), shardings.skipped)
        state = State(params, opt_state, skipped)
    else:
        # Members are read whole by every host and stacked there: each has its own files.
        one = jax.tree.map(lambda leaf: np.empty(leaf.shape[1:], leaf.dtype), target)
        restored = [c.restore(step, one.params, one.opt_state) for c in checkpoints]
        data_state = restored[0][2]
        members = [
            State(params, opt_state, np.int32(data.skipped_in_row))
            for params, opt_state, data in restored
        ]
        state = put(stack(members), shardings)
    fingerprint = plan.data[at(config, step).number].fingerprint
    if data_state.fingerprint != fingerprint:
        raise ValueError(
            f"{plan.runs[0].path} was trained on other data (fingerprint {data_state.fingerprint}, "
            f"now {fingerprint}); restore {config.data.path or 'the source'} or use a new "
            "--workdir"
        )
    return checkpoints, state, data_state


def first_state(
    configs: Sequence[ExperimentConfig], shardings: State, params: Sequence[Params] = ()
) -> State:
    """The state before the first update: fresh, or with the parameters of other runs."""
    seeds = stack([np.uint32(config.seed) for config in configs])
    # Made where it will lie: no host ever holds parameters that only fit on all devices together.
    make_state = program(_init, program_of(configs[0]), len(configs), out_shardings=shardings)
    state = make_state(seeds)
    return state._replace(params=put(stack(params), shardings.params)) if params else state


def _init(config: ExperimentConfig, num_members: int) -> Callable[[Any], State]:
    make_state = functools.partial(init_state, config)
    return make_state if num_members == 1 else jax.vmap(make_state)


def shardings_of(target: State) -> State:
    """Where each array of an abstract state lies."""
    return jax.tree.map(lambda leaf: leaf.sharding, target)


def with_fresh_moments(
    state: State, config: ExperimentConfig, num_members: int, shardings: State
) -> State:
    """The state at the beginning of a stage: its parameters, and moments at zero."""
    init = program(_moments, config.train, num_members, out_shardings=shardings.opt_state)
    return state._replace(opt_state=init(state.params))


def _moments(config: TrainConfig, num_members: int) -> Callable[[Params], Any]:
    init = optimizer.direction(config).init
    return init if num_members == 1 else jax.vmap(init)


def unstack(tree: Any, num_members: int, shardings: Any) -> Iterator[Any]:
    """Each member's part, as a copy: the next step donates the state while a save still reads."""
    if num_members == 1:
        yield jax.tree.map(jnp.copy, tree)
        return
    one = jax.tree.map(lambda x: NamedSharding(x.mesh, PartitionSpec(*x.spec[1:])), shardings)
    # One program per member, waited for: apart, the slices of many arrays may meet in another order
    # on another host, and wait for one another forever.
    for index in range(num_members):
        yield jax.block_until_ready(program(_take, index, out_shardings=one)(tree))


def _take(index: int) -> Callable[[Any], Any]:
    return lambda tree: jax.tree.map(lambda x: x[index], tree)
