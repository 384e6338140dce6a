"""Sweeps: a grid of members, trained group by group.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with `data.seed` given they read the same rows, and train together. Members whose shapes differ
train one group after another.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from data import pipeline
from data.config import DataConfig
from experiment import distributed
from experiment.config import EvalConfig, ExperimentConfig, MeshConfig
from experiment.inherit import describe
from experiment.overrides import SweepMember, make_members
from experiment.records import SweepRecord, read_sweep
from experiment.run import RunDirectory, is_operational
from experiment.stages import split
from training import loop
from training.divergence import DivergedError
from training.plan import check_plan, make_plan
from training.programs import StaticConfig, static_config
from training.validation import EvaluateMembers
from utils.files import write_atomically
from utils.paths import as_path


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


def _make_groups(
    config: ExperimentConfig, workdir: Path, overrides: Sequence[str], only: int | None
) -> tuple[SweepRecord, list[Group]]:
    """Return the record for sweep.json, and the groups; see `train_sweep`."""
    members = make_members(config, overrides, workdir)
    names = tuple(member.name for member in members)
    record = SweepRecord(config=config.name, overrides=tuple(overrides), members=names)
    _check_directory(workdir, record)
    if only is not None and not 0 <= only < len(members):
        raise ValueError(f"no member {only}: the sweep has members 0 to {len(members) - 1}")
    runs = {member.name: RunDirectory(workdir / member.name) for member in members}
    # A sweep that was started by an older version continues with its fields, including members
    # that have not started yet.
    for run in [run for run in runs.values() if run.is_started()][:1]:
        members = [m._replace(config=run.kept(m.config, m.overrides)) for m in members]
    groups: dict[tuple[SharedStage, ...], Group] = {}
    for member in members if only is None else [members[only]]:
        shared = shared_part(member.config)
        group = groups.setdefault(shared, Group(shared, [], []))
        group.members.append(member)
        group.runs.append(runs[member.name])
    return record, list(groups.values())


def _inherited(config: ExperimentConfig, groups: Sequence[Group]) -> list[str]:
    """Return the lines of `experiment.inherit.describe`, each once with its members' names."""
    members: dict[str, list[str]] = {}
    for group in groups:
        for member, run in zip(group.members, group.runs, strict=True):
            for line in describe(config, member.config, run):
                members.setdefault(line, []).append(member.name)
    count = sum(len(group.members) for group in groups)
    return [
        line if len(names) == count else f"{', '.join(names)}: {line}"
        for line, names in members.items()
    ]


def check_sweep(
    config: ExperimentConfig,
    workdir: Path,
    overrides: Sequence[str],
    *,
    only: int | None = None,
    num_devices: int | None = None,
    make_evaluate: Callable[[ExperimentConfig], EvaluateMembers | None] = lambda config: None,
) -> list[str]:
    """Check a sweep as `training.plan.check_plan` checks a run, group by group; write nothing.

    Args:
      config, workdir, given, only, make_evaluate: as in `train_sweep`.
      num_devices: as in `check_plan`.

    Returns:
      Lines that say what members inherit, and what was checked.

    Raises:
      ValueError: for anything the user has to mend.
    """
    _, groups = _make_groups(config, as_path(workdir), overrides, only)
    lines = _inherited(config, groups)
    for group in groups:
        make_evaluate(group.members[0].config)
        lines += check_plan(
            [member.config for member in group.members],
            group.runs,
            overrides=[member.overrides for member in group.members],
            num_devices=num_devices,
        )
    return lines


def train_sweep(
    config: ExperimentConfig,
    workdir: Path,
    overrides: Sequence[str],
    *,
    command: str = "",
    only: int | None = None,
    make_evaluate: Callable[[ExperimentConfig], EvaluateMembers | None] = lambda config: None,
) -> bool:
    """Train all members under `workdir`, or member number `only`; return whether all finished.

    Args:
      config: the config that the overrides change.
      workdir: the directory of the sweep, which contains those of its members.
      given: overrides, whose commas make the members.
      command: as in `training.loop.train`.
      make_evaluate: returns the `evaluate` of `train` for a config; rejects unknown tasks.
      only: the one member to train, from 0; None: all of them.

    Raises:
      ValueError: for any error of the user, before compute is spent.
      DivergedError: if all groups diverged.
    """
    with distributed.refusing_together():
        workdir = as_path(workdir)
        record, groups = _make_groups(config, workdir, overrides, only)
        inherited = _inherited(config, groups)
        # Check all data before the text of the first group is prepared.
        for group in groups:
            for stage in group.shared:
                pipeline.check_data(group.runs[0].with_own_tokenizer(stage.data))
    # Plan all groups before training the first: an error in the last must not appear hours later.
    plans = [
        make_plan(
            [member.config for member in group.members],
            group.runs,
            overrides=[member.overrides for member in group.members],
        )
        for group in groups
    ]
    evaluators = [make_evaluate(plan.configs[0]) for plan in plans]
    if distributed.is_primary_host():
        workdir.mkdir(parents=True, exist_ok=True)
        write_atomically(workdir / "sweep.json", record.to_json())

    console = Console(stderr=True, quiet=not distributed.is_primary_host())
    for line in inherited:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if len(groups) > 1:
        shapes = {tuple(stage.program for stage in group.shared) for group in groups}
        seeds = {group.shared[0].data.seed for group in groups}
        console.print(
            f"{len(record.members)} members, {_plural(len(shapes), 'shape')}, "
            f"{_plural(len(seeds), 'data seed')}: one program per shape, one after another"
        )
    num_diverged = 0
    for plan, evaluate in zip(plans, evaluators, strict=True):
        names, num_parts = ", ".join(run.name for run in plan.runs), plan.mesh.shape["sweep"]
        spread = f" (over {num_parts} devices)" if num_parts > 1 else ""
        console.print(f"training {names}{spread}", highlight=False)
        try:
            if not loop.train(plan, command=command, evaluate=evaluate):
                return False
        except DivergedError as error:
            console.print(str(error), highlight=False, soft_wrap=True)
            num_diverged += 1
    if num_diverged == len(plans):
        raise DivergedError(f"all members diverged: no member of {workdir} finished")
    return True


def _check_directory(workdir: Path, record: SweepRecord) -> None:
    """Raise ValueError if the directory holds a run, or another sweep than the one of `record`."""
    exists = (workdir / "sweep.json").exists()
    if exists and (other := read_sweep(workdir).difference(record, is_operational)):
        raise ValueError(
            f"{workdir} holds another sweep, {other}; use another --workdir, or delete that "
            "directory"
        )
    if RunDirectory(workdir).is_started():
        raise ValueError(
            f"{workdir} holds a run; use another --workdir, or train.py to continue it"
        )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
