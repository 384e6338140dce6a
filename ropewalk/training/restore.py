"""State from checkpoints: of the runs themselves, or of those that they start from.

All processes must call these functions together, except `find_matching_start`.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.experiment import checkpoint, distributed
from ropewalk.experiment.checkpoint import (
    DataState,
    naming_intact_checkpoint,
    restore_params,
    shape_difference,
)
from ropewalk.experiment.config import first_difference
from ropewalk.experiment.items import COULD_NOT_BE_READ, DamagedCheckpointError
from ropewalk.experiment.mesh import put
from ropewalk.experiment.overrides import Member
from ropewalk.experiment.run import RunDirectory, find_start
from ropewalk.model.transformer import Params, abstract_params
from ropewalk.training.members import shardings_of
from ropewalk.training.programs import stack
from ropewalk.training.step import State


def restore_newest(
    runs: Sequence[RunDirectory],
    steps: Sequence[int],
    target_at: Callable[[int], State],
    notice: Callable[[str], None],
) -> tuple[State, DataState, int]:
    """Return the newest state that is intact in all members, the rows consumed, and the step.

    Damaged checkpoints are set aside.

    Args:
      runs: run of each member.
      steps: of their common checkpoints, at least one; the last is the same in all processes.
      target_at: returns shapes, dtypes, and shardings of the state at a step; each device reads
        its own shard.
      notice: called with one line for each damaged checkpoint.

    Raises:
      ValueError: if no checkpoint is intact.
    """
    step = steps[-1]
    damaged: list[tuple[int, str, Sequence[RunDirectory]]] = []
    while True:
        try:
            state, data_state = _restore_step(runs, step, target_at(step))
            break
        except ValueError as error:
            # All processes know the message, but only the one that raised it knows its type.
            if COULD_NOT_BE_READ in str(error):
                raise
            damage = error if isinstance(error, DamagedCheckpointError) else error.__cause__
            if isinstance(damage, DamagedCheckpointError):
                damaged.append((step, damage.what, [damage.run]))
            else:  # another host failed to read
                damaged.append((step, str(error), runs))
            older = [other for other in steps if other < step]
            # A file system may show a checkpoint to one host before another.
            step = distributed.broadcast_from_primary(max(older, default=0))
            if step == 0:
                run, (number, what, _) = runs[0], damaged[0]
                raise ValueError(
                    f"{run.path} has no intact checkpoint ({number}: {what}); delete "
                    f"{run.checkpoints_path} to train from the start"
                ) from error
    for number, what, damaged_runs in damaged:
        for run in damaged_runs if distributed.is_primary_host() else ():
            aside = checkpoint.set_aside(run, number, "damaged")
            notice(f"DAMAGED: checkpoint {number} of {run.path}: {what}; it is now {aside}")
    return state, data_state, step


def set_later_aside(runs: Sequence[RunDirectory], step: int, notice: Callable[[str], None]) -> None:
    """Set the checkpoints past `step` aside, which runs reach again: orbax saves no step twice.

    Members save one after another, so a killed sweep leaves checkpoints that only some have.
    """
    for run in runs if distributed.is_primary_host() else ():
        for later in [other for other in run.steps() if other > step]:
            aside = checkpoint.set_aside(run, later, checkpoint.AHEAD)
            notice(
                f"note: checkpoint {later} of {run.path} is past step {step}, from which training "
                f"goes on; it is now {aside}"
            )
    distributed.barrier("checkpoints are set aside")


def _restore_step(
    runs: Sequence[RunDirectory], step: int, target: State
) -> tuple[State, DataState]:
    """Return the verified state of `step`. Raises ValueError in all processes if it is damaged."""
    alone = len(runs) == 1
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
            for run in runs
        ]
    with distributed.refusing_together():
        for run, saved in zip(runs, restored, strict=True):
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


def starting_params(members: Sequence[Member], where: Params) -> Params:
    """Return the parameters of the runs that `start_from` names, float32, stacked over members.

    For a single run, each device reads only its own shard, in the saved dtype, because one host may
    not have memory for all parameters.

    Args:
      members: those that train together.
      where: shardings of the parameters.

    Raises:
      ValueError: in all processes, if there is no such checkpoint, it is damaged, or its model
        has other shapes.
    """
    with distributed.refusing_together():
        parents = [find_matching_start(member) for member in members]
    if len(members) > 1:  # members are small: the host stacks them
        with distributed.refusing_together():
            members_params = [restore_params(*parent)[0] for parent in parents]
        return put(
            jax.tree.map(lambda *members: np.stack(members, dtype=np.float32), *members_params),
            where,
        )
    ((run, step),) = parents
    with distributed.refusing_together(), naming_intact_checkpoint(run, step):
        target = jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            checkpoint.stored_params(run, step),
            where,
        )
        restored = checkpoint.restore(run, step, params=target)
    # All processes verify together, so all of them must have read first.
    with distributed.refusing_together(), naming_intact_checkpoint(run, step):
        checkpoint.verify(run, step, restored.arrays, restored.digests)
    leaves, tree = jax.tree.flatten(restored.arrays.pop("params"))
    for i in range(len(leaves)):  # one array at a time bounds the peak memory
        leaves[i] = jnp.asarray(leaves[i], np.float32)
    return jax.tree.unflatten(tree, leaves)


def find_matching_start(member: Member) -> tuple[RunDirectory, int]:
    """Return the run and the step that `start_from` of a member names.

    Raises:
      ValueError: if there is no such checkpoint, its parameters have other shapes, or it has
        another config than the started run of the member recorded.
    """
    run, _, config = member
    parent, step = find_start(str(config.start_from))
    where, parent_config = f"start_from={config.start_from}", parent.config_at(step)
    if run.is_started() and (changed := first_difference(run.parent_config, parent_config)):
        name, old, new = changed
        raise ValueError(
            f"{run.path} started from a run with {name}={old}, and {where} has {name}={new}; use "
            "another --workdir"
        )
    theirs, ours = abstract_params(parent.config.model), abstract_params(config.model)
    if difference := shape_difference(theirs, ours):
        raise ValueError(
            f"{where}: its {difference} in this config's model; set the sizes of `model` in "
            f"{parent.path}/config.json"
        )
    return parent, step
