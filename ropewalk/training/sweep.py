"""Train the members of a sweep, or a single run, group by group.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with `data.seed` given they read the same rows, and train together. Members whose shapes differ
train one group after another.
"""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from ropewalk.experiment import distributed
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.mesh import check_stages, describe_mesh, mesh_sizes
from ropewalk.experiment.overrides import Member, Sweep
from ropewalk.experiment.run import RunDirectory, find_pruned
from ropewalk.experiment.stages import split
from ropewalk.training import loop
from ropewalk.training.directories import open_directories
from ropewalk.training.log import DivergedError, make_console
from ropewalk.training.plan import Checked, Plan, check_plan, complete_plan
from ropewalk.training.programs import shared_part
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import counted

T = TypeVar("T")


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return groups of items of equal keys, in order of appearance."""
    groups: dict = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _train_together(members: Iterable[Member]) -> list[list[Member]]:
    """Return groups of members that train together; one that was stopped early leaves its group."""
    return _grouped(members, lambda member: (shared_part(member.config), member.run.stops))


def check_meshes(configs: Sequence[ExperimentConfig], num_devices: int, num_processes: int) -> None:
    """Check the meshes of members that one command trains, on other devices than this machine's.

    Raises:
      ValueError: as `mesh_sizes`.
    """
    for group in _grouped(configs, shared_part):
        stages = [stage.config for stage in split(group[0])]
        axes = mesh_sizes(stages[0], len(group), num_devices, num_processes)
        check_stages(stages, axes, len(group))


def check_sweep(sweep: Sweep, elsewhere: tuple[int, int] | None = None) -> list[Checked]:
    """Check a sweep as `training.plan.check_plan` checks a run, group by group; write nothing.

    Raises:
      ValueError: for any error of the user.
    """
    sweep.check_workdir()
    return [check_plan(group, elsewhere) for group in _train_together(sweep.members)]


def train_sweep(sweep: Sweep, *, command: str = "") -> bool:
    """Train all members; return whether all finished.

    Args:
      sweep: what to train.
      command: the command line, recorded in each run and repeated after an interruption.

    Raises:
      ValueError: for any error of the user, before compute is spent.
      DivergedError: if all groups diverged.
    """
    with distributed.refusing_together():
        checks = check_sweep(sweep)
    console, unfinished = make_console(), []
    for checked in checks:
        if find_pruned(checked.runs, checked.steps):  # else refused: nothing is left to train
            steps, names = counted(checked.start_step, "steps"), (run.name for run in checked.runs)
            console.print(f"{', '.join(names)}: finished already, {steps}, and pruned")
        else:
            unfinished.append(checked)
    # Plan all groups before training the first: an error in the last must not appear hours later.
    plans = list(map(complete_plan, unfinished))
    names = sweep.record.members if sweep.record else ()
    members = (RunDirectory(sweep.workdir / name) for name in names)
    with distributed.refusing_together():
        # Another command may train members.
        for run, plan in itertools.product(filter(RunDirectory.is_started, members), plans):
            data = dataclasses.replace(run.config.data, seed=plan.config.data.seed)
            if (data, run.config.stages) == (plan.config.data, plan.config.stages):
                texts = [data.fingerprint for data in plan.data]
                run.refuse_other_texts(run.record.get("trained_on"), texts)
    if sweep.record and distributed.is_primary_host():
        sweep.workdir.mkdir(parents=True, exist_ok=True)
        write_atomically(sweep.workdir / "sweep.json", sweep.record.to_json())

    num_diverged, queue = 0, [*plans]
    while queue:
        plan = queue.pop(0)
        later_tokens = sum(stage.tokens for later in queue for stage, *_ in later.stages)
        if sweep.record:
            names = ", ".join(run.name for run in plan.runs)
            is_split = any(size > 1 for size in plan.mesh.shape.values())
            spread = f" (over {describe_mesh(plan.mesh)})" if is_split else ""
            console.print(f"training {names}{spread}")
        try:
            finished = train_plan(plan, command=command, later_tokens=later_tokens)
        except DivergedError as error:
            if sweep.record is None:
                raise
            console.print(str(error))
            num_diverged += len(plan.runs)
            continue
        if finished is None:  # some members were stopped early: the others go on without them
            groups = _train_together(plan.members)
            groups = [group for group in groups if not all(x.run.is_finished for x in group)]
            with distributed.refusing_together():
                checks = list(map(check_plan, groups))
            queue[:0] = map(complete_plan, checks)
        elif not finished:
            return False
    if plans and num_diverged == sum(len(plan.runs) for plan in plans):
        raise DivergedError(f"all members diverged: no member of {sweep.workdir} finished")
    return True


def train_plan(plan: Plan, *, command: str = "", later_tokens: int = 0) -> bool | None:
    """Lock the run directories of a plan, and train it; see `training.loop.train`."""
    with open_directories(plan, command) as check_lock:
        return loop.train(plan, check_lock, command=command, later_tokens=later_tokens)
