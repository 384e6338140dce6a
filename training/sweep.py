"""Members of a command, trained group by group: those of a sweep, or a single run.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with `data.seed` given they read the same rows, and train together. Members whose shapes differ
train one group after another.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from data import pipeline
from data.config import DataConfig
from experiment import distributed
from experiment.config import EvalConfig, ExperimentConfig, MeshConfig
from experiment.inherit import describe
from experiment.mesh import describe_mesh, mesh_sizes
from experiment.overrides import Job, SweepMember, sweep_job
from experiment.run import RunDirectory
from experiment.stages import split
from training import loop
from training.log import DivergedError
from training.plan import check_plan, make_plan
from training.programs import StaticConfig, static_config
from utils.files import write_atomically


class SharedStage(NamedTuple):
    """The part of a stage that members of a group have in common.

    Attributes:
      program: the static part.
      data: including its seed: members of a group read the same batches.
      mesh, evals: as in the config.
      starts_from_run: whether the parameters come from a run.
    """

    program: StaticConfig
    data: DataConfig
    mesh: MeshConfig
    evals: EvalConfig
    starts_from_run: bool


def shared_part(config: ExperimentConfig) -> tuple[SharedStage, ...]:
    """Return the part of each stage of `config` that members of a group have in common."""
    return tuple(
        SharedStage(
            static_config(stage.config),
            stage.config.data,
            config.mesh,
            config.evals,
            config.start_from is not None,
        )
        for stage in split(config)
    )


class Group(NamedTuple):
    """Members that train together.

    Attributes:
      shared: the part that they share, per stage.
      members: members in the order of the sweep.
      runs: their directories.
    """

    shared: tuple[SharedStage, ...]
    members: list[SweepMember]
    runs: list[RunDirectory]

    def plan(self, make: Callable, **options):
        """Return `make_plan` or `check_plan` of the group."""
        overrides = [member.overrides for member in self.members]
        return make([m.config for m in self.members], self.runs, overrides=overrides, **options)


def _make_groups(job: Job) -> list[Group]:
    job.check_directories()
    groups: dict[tuple[SharedStage, ...], Group] = {}
    for member in job.members:
        shared = shared_part(member.config)
        group = groups.setdefault(shared, Group(shared, [], []))
        group.members.append(member)
        group.runs.append(RunDirectory(job.workdir / member.name))
    return list(groups.values())


def check_meshes(configs: Sequence[ExperimentConfig], num_devices: int, num_processes: int) -> None:
    """Check the meshes of members that one command trains, on other devices than this machine's.

    Raises:
      ValueError: as `mesh_sizes`.
    """
    for shared, count in Counter(map(shared_part, configs)).items():
        config = next(config for config in configs if shared_part(config) == shared)
        for stage in split(config):
            mesh_sizes(stage.config, count, num_devices, num_processes)


def _inherited(job: Job, groups: Sequence[Group]) -> list[str]:
    """Return the lines of `experiment.inherit.describe`, each once with its members' names."""
    names: dict[str, list[str]] = {}
    for group in groups:
        for member, run in zip(group.members, group.runs, strict=True):
            for line in describe(job.config, member.config, run):
                names.setdefault(line, []).append(member.name)
    return [
        line if len(members) == len(job.members) else f"{', '.join(members)}: {line}"
        for line, members in names.items()
    ]


def check_job(job: Job, *, num_devices: int | None = None, num_processes: int = 1) -> list[str]:
    """Check a job as `training.plan.check_plan` checks a run, group by group; write nothing.

    Args:
      job: what to check.
      num_devices, num_processes: as in `check_plan`.

    Returns:
      Lines that say what members inherit, and what was checked.

    Raises:
      ValueError: for any error of the user.
    """
    groups = _make_groups(job)
    lines = _inherited(job, groups)
    for group in groups:
        lines += group.plan(check_plan, num_devices=num_devices, num_processes=num_processes)
    return lines


def train_job(job: Job, *, command: str = "") -> bool:
    """Train all members; return whether all finished.

    Args:
      job: what to train.
      command: as in `training.loop.train`.

    Raises:
      ValueError: for any error of the user, before compute is spent.
      DivergedError: if all groups diverged.
    """
    with distributed.refusing_together():
        groups = _make_groups(job)
        inherited = _inherited(job, groups)
        # Check all data before the text of the first group is prepared.
        for group in groups if len(groups) > 1 else ():
            for stage in group.shared:
                pipeline.check_data(group.runs[0].with_own_tokenizer(stage.data))
    # Plan all groups before training the first: an error in the last must not appear hours later.
    plans = [group.plan(make_plan) for group in groups]
    if job.record and distributed.is_primary_host():
        job.workdir.mkdir(parents=True, exist_ok=True)
        write_atomically(job.workdir / "sweep.json", job.record.to_json())

    quiet = not distributed.is_primary_host()
    console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
    for line in inherited:
        console.print(line)
    if job.record and len(groups) > 1:
        shapes = {tuple(stage.program for stage in group.shared) for group in groups}
        seeds = {group.shared[0].data.seed for group in groups}
        console.print(
            f"{len(job.record.members)} members, {_plural(len(shapes), 'shape')}, "
            f"{_plural(len(seeds), 'data seed')}: one program per shape, one after another"
        )
    num_diverged = 0
    tokens = [sum(stage.tokens for stage, *_ in plan.stages) for plan in plans]
    for number, plan in enumerate(plans):
        if job.record:
            names = ", ".join(run.name for run in plan.runs)
            is_split = any(size > 1 for size in plan.mesh.shape.values())
            spread = f" (over {describe_mesh(plan.mesh)})" if is_split else ""
            console.print(f"training {names}{spread}")
        try:
            later = sum(tokens[number + 1 :])
            if not loop.train(plan, command=command, later_tokens=later):
                return False
        except DivergedError as error:
            if job.record is None:
                raise
            console.print(str(error))
            num_diverged += 1
    if num_diverged == len(plans):
        raise DivergedError(f"all members diverged: no member of {job.workdir} finished")
    return True


def train_sweep(
    config: ExperimentConfig, workdir: Path, overrides: Sequence[str], *, only: int | None = None
) -> bool:
    """Train the sweep of `experiment.overrides.sweep_job` as `train_job` does."""
    return train_job(sweep_job(config, workdir, overrides, only=only))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
