"""The members of a sweep as one training state: stacked in front, made, restored, taken apart."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiment import checkpoint, distributed
from experiment.checkpoint import Checkpoints, DataState
from experiment.config import ExperimentConfig, TrainConfig
from experiment.items import COULD_NOT_BE_READ, DamagedCheckpointError
from experiment.mesh import put
from experiment.run import common_steps
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


def open_state(
    plan: Plan, target: State, notice: Callable[[str], None]
) -> tuple[list[Checkpoints], State, DataState, int]:
    """Each member's checkpoints, the state to go on from, first or restored, and its step.

    Args:
      plan: of the run.
      target: shapes, dtypes and shardings of the state: each device reads its own part.
      notice: told of damaged checkpoints.

    Raises:
      ValueError: if the run was trained on other data, or no checkpoint is whole.
    """
    config = plan.configs[0]
    if plan.start_step:
        state, data_state, step = _newest_whole(plan, target, notice)
    else:
        state = first_state(plan.configs, shardings_of(target), plan.params)
        data_state, step = DataState(fingerprint=plan.data[0].fingerprint), 0
    fingerprint = plan.data[at(config, step).number].fingerprint
    if data_state.fingerprint != fingerprint:
        raise ValueError(
            f"{plan.runs[0].path} was trained on other data (fingerprint {data_state.fingerprint}, "
            f"now {fingerprint}); restore {config.data.path or 'the source'} or use a new "
            "--workdir"
        )
    remove_old(plan, step)
    distributed.barrier("old checkpoints are removed")
    # Members save one after another: until the last has, all must hold the one before.
    keep = max(config.train.keep, 1 if len(plan.runs) == 1 else 2)
    checkpoints = [Checkpoints(run, keep=keep, always=_ends(plan)) for run in plan.runs]
    return checkpoints, state, data_state, step


def remove_old(plan: Plan, step: int) -> None:
    """Leaves of each run's checkpoints up to `step` what its config keeps."""
    if step and distributed.is_primary_host():
        for run in plan.runs:
            checkpoint.remove_old(run, step, keep=plan.configs[0].train.keep, always=_ends(plan))


def _ends(plan: Plan) -> list[int]:
    """Of stages, kept whatever comes after: they are results, and other runs start from them."""
    return [stage.end for stage, *_ in plan.stages]


def _newest_whole(
    plan: Plan, target: State, notice: Callable[[str], None]
) -> tuple[State, DataState, int]:
    """The newest state that is whole in all members; damaged checkpoints are set aside."""
    step, damaged = plan.start_step, []
    while True:
        with distributed.refusing_together():
            for run in plan.runs:
                # What is too damaged to be compared is found so below.
                with contextlib.suppress(DamagedCheckpointError):
                    checkpoint.check_config(run, step)
        try:
            state, data_state = _restored(plan, target, step)
            break
        except ValueError as error:
            # All processes know these words, and the type only where it was raised.
            if COULD_NOT_BE_READ in str(error):
                raise
            found = error if isinstance(error, DamagedCheckpointError) else error.__cause__
            known = isinstance(found, DamagedCheckpointError)
            # Of what only another host cannot read, no more than its words are known here.
            damaged.append((step, *((found.what, [found.run]) if known else (error, plan.runs))))
            older = [each for each in common_steps(plan.runs) if each < step]
            # The disk may show a checkpoint to one host before another.
            step = distributed.broadcast_from_primary(max(older, default=0))
            if step == 0:
                run, (number, what, _) = plan.runs[0], damaged[0]
                raise ValueError(
                    f"{run.path} has no whole checkpoint ({number}: {what}); delete "
                    f"{run.checkpoints_path} to train from the start"
                ) from error
    for number, what, runs in damaged:
        for run in runs if distributed.is_primary_host() else ():
            aside = checkpoint.set_aside(run, number)
            notice(f"DAMAGED: checkpoint {number} of {run.path}: {what}; it is now {aside}")
    return state, data_state, step


def _restored(plan: Plan, target: State, step: int) -> tuple[State, DataState]:
    """The state of `step`, found whole. Raises ValueError, in all processes, if it is not."""
    alone = len(plan.runs) == 1
    # Members are read whole by every host and stacked there: each has its own files.
    one = target if alone else jax.tree.map(lambda x: np.empty(x.shape[1:], x.dtype), target)
    # Read before anything is compared: that takes all hosts, and one of them may be unable to read.
    with distributed.refusing_together():
        restored = [
            checkpoint.restore(run, step, params=one.params, opt_state=one.opt_state)
            for run in plan.runs
        ]
    with distributed.refusing_together():
        for run, each in zip(plan.runs, restored, strict=True):
            checkpoint.verify(run, step, each)
    states = [State(**each.arrays, skipped=np.int32(each.data.skipped_in_row)) for each in restored]
    shardings = shardings_of(target)
    if alone:
        state = states[0]._replace(skipped=put(states[0].skipped, shardings.skipped))
    else:
        state = put(stack(states), shardings)
    return state, restored[0].data


def first_state(
    configs: Sequence[ExperimentConfig], shardings: State, params: Params | None = None
) -> State:
    """The state before the first update: fresh, or with the parameters of other runs.

    Args:
      configs: of the members.
      shardings: of the state.
      params: where the state has its own, members stacked (`training.start`).
    """
    seeds = stack([np.uint32(config.seed) for config in configs])
    # Made where it will lie: no host ever holds parameters that only fit on all devices together.
    first = program_of(configs[0])
    make_state = program(_init, first, len(configs), out_shardings=shardings, runs_once=True)
    state = make_state(seeds)
    return state if params is None else state._replace(params=params)


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
    if jax.process_count() == 1 and jax.default_backend() == "cpu":
        whole = jax.device_get(tree)  # in its own memory already: no program needs to be compiled
        for index in range(num_members):
            yield jax.tree.map(lambda x, index=index: x[index].copy(), whole)
        return
    one = jax.tree.map(lambda x: NamedSharding(x.mesh, PartitionSpec(*x.spec[1:])), shardings)
    # One program per member, waited for: apart, the slices of many arrays may meet in another order
    # on another host, and wait for one another forever.
    for index in range(num_members):
        yield jax.block_until_ready(program(_take, index, out_shardings=one)(tree))


def _take(index: int) -> Callable[[Any], Any]:
    return lambda tree: jax.tree.map(lambda x: x[index], tree)
