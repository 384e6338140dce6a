"""The members of a sweep as one training state: create, restore, stack, and unstack it."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ropewalk.experiment import checkpoint, distributed
from ropewalk.experiment.checkpoint import DataState
from ropewalk.experiment.config import ExperimentConfig, TrainConfig
from ropewalk.experiment.items import COULD_NOT_BE_READ, DamagedCheckpointError
from ropewalk.experiment.mesh import put
from ropewalk.experiment.run import RunDirectory, common_steps
from ropewalk.model import sharding
from ropewalk.model.transformer import Params
from ropewalk.training import optimizer
from ropewalk.training.plan import Plan
from ropewalk.training.programs import StaticConfig, program, stack, static_config
from ropewalk.training.step import State, init_state


def abstract_state(config: ExperimentConfig, num_members: int, mesh: Mesh) -> State:
    """Return shapes, dtypes, and shardings of the training state, stacked if several members."""
    stacked = num_members > 1
    make_state = lambda seed: init_state(config, seed)  # noqa: E731
    seeds = stack([np.uint32(0)] * num_members)
    state = jax.eval_shape(jax.vmap(make_state) if stacked else make_state, seeds)
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


def open_state(
    plan: Plan, target: State, notice: Callable[[str], None]
) -> tuple[State, DataState, int]:
    """Return the restored or initial state, the rows consumed, and the step.

    Args:
      plan: the complete plan.
      target: shapes, dtypes, and shardings of the state; each device reads its own shard.
      notice: called with one line for each damaged checkpoint.

    Raises:
      ValueError: if the run was trained on other data, or no checkpoint is intact.
    """
    if plan.start_step:
        state, data_state, step = _restore_newest(plan, target, notice)
    else:
        configs = [member.config for member in plan.members]
        state = first_state(configs, shardings_of(target), plan.params)
        data_state, step = DataState(fingerprint=plan.data[0].fingerprint), 0
    numbers = [stage.number for stage, *_ in plan.stages if step <= stage.end]
    fingerprint = plan.data[numbers[0]].fingerprint
    if data_state.fingerprint != fingerprint:
        raise ValueError(
            f"{plan.runs[0].path} was trained on other data (fingerprint "
            f"{data_state.fingerprint[:12]}, now {fingerprint[:12]}); restore the content of "
            f"{plan.config.data.path or 'the source'}, or use a new --workdir"
        )
    return state, data_state, step


def _restore_newest(
    plan: Plan, target: State, notice: Callable[[str], None]
) -> tuple[State, DataState, int]:
    """Return the newest state that is intact in all members; set damaged checkpoints aside."""
    step = plan.start_step
    damaged: list[tuple[int, str, Sequence[RunDirectory]]] = []
    while True:
        try:
            state, data_state = _restore_step(plan, target, step)
            break
        except ValueError as error:
            # All processes know the message, but only the one that raised it knows its type.
            if COULD_NOT_BE_READ in str(error):
                raise
            damage = error if isinstance(error, DamagedCheckpointError) else error.__cause__
            if isinstance(damage, DamagedCheckpointError):
                damaged.append((step, damage.what, [damage.run]))
            else:  # another host failed to read
                damaged.append((step, str(error), plan.runs))
            older = [other for other in common_steps(plan.runs) if other < step]
            # A file system may show a checkpoint to one host before another.
            step = distributed.broadcast_from_primary(max(older, default=0))
            if step == 0:
                run, (number, what, _) = plan.runs[0], damaged[0]
                raise ValueError(
                    f"{run.path} has no intact checkpoint ({number}: {what}); delete "
                    f"{run.checkpoints_path} to train from the start"
                ) from error
    for number, what, runs in damaged:
        for run in runs if distributed.is_primary_host() else ():
            aside = checkpoint.set_aside(run, number)
            notice(f"DAMAGED: checkpoint {number} of {run.path}: {what}; it is now {aside}")
    distributed.barrier("damaged checkpoints are set aside")
    return state, data_state, step


def _restore_step(plan: Plan, target: State, step: int) -> tuple[State, DataState]:
    """Return the verified state of `step`. Raises ValueError in all processes if it is damaged."""
    alone = len(plan.runs) == 1
    # Each member has its own files: every host reads all members and stacks them.
    member_target = (
        target if alone else jax.tree.map(lambda x: np.empty(x.shape[1:], x.dtype), target)
    )
    # Read everything before verifying: verification needs all hosts, and one may be unable to read.
    with distributed.refusing_together():
        restored = [
            checkpoint.restore(
                run, step, params=member_target.params, opt_state=member_target.opt_state
            )
            for run in plan.runs
        ]
    with distributed.refusing_together():
        for run, saved in zip(plan.runs, restored, strict=True):
            checkpoint.verify(run, step, saved.arrays, saved.digests)
    states = [
        State(**saved.arrays, skipped=np.int32(saved.data.skipped_in_row)) for saved in restored
    ]
    shardings = shardings_of(target)
    if alone:
        state = states[0]._replace(skipped=put(states[0].skipped, shardings.skipped))
    else:
        state = put(stack(states), shardings)
    return state, restored[0].data


def first_state(
    configs: Sequence[ExperimentConfig], shardings: State, params: Params | None = None
) -> State:
    """Return the state before the first update.

    Args:
      configs: one per member.
      shardings: shardings of the state.
      params: parameters of other runs to start from, stacked (`training.plan`); None: fresh ones.
    """
    seeds = stack([np.uint32(config.seed) for config in configs])
    # Create the state in its shards: no host needs memory for all parameters.
    first = static_config(configs[0])
    # With level 1, initializing `demo` compiles in 2.2 s instead of 6.7 s, with the same numbers.
    make_state = program(_init, first, len(configs), out_shardings=shardings, cpu_level=1)
    state = make_state(seeds)
    return state if params is None else state._replace(params=params)


def _init(config: StaticConfig, num_members: int) -> Callable[[Any], State]:
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
