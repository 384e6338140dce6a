"""A grid of members, trained group by group.

Members that differ only in arrays (rotary variant, window, learning rate, the run they start from),
in every stage, train together in one compiled program, on identical batches and, for equal seeds,
from identical parameters. Seeds train one after another through that program, each on rows of its
own; with `data.seed` given they read the same rows, and train together. Members whose shapes differ
train one group after another.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from data import pipeline
from data.files import write_atomically
from experiment import distributed
from experiment.config import ExperimentConfig
from experiment.inherit import describe
from experiment.overrides import SweepMember, make_members
from experiment.records import SweepRecord, read_sweep
from experiment.run import RunDirectory, is_operational
from experiment.stages import split
from settings.places import place
from training import loop
from training.divergence import DivergedError
from training.plan import check_plan, make_plan
from training.programs import program_of
from training.validation import Ask


def shared_part(config: ExperimentConfig) -> tuple[ExperimentConfig, ...]:
    """Each stage of `config`, all in which members that train together may differ set to one value.

    They read the same batches: the data's seed stays.
    """
    start = config.start_from and "a run"
    return tuple(
        dataclasses.replace(program_of(each.config), start_from=start, data=each.config.data)
        for each in split(config)
    )


class Group(NamedTuple):
    """Members that train together.

    Attributes:
      shared: what their programs have in common, per stage.
      members: in the order of the sweep.
      runs: where each is trained.
    """

    shared: tuple[ExperimentConfig, ...]
    members: list[SweepMember]
    runs: list[RunDirectory]


def _make_groups(
    config: ExperimentConfig, workdir: Path, given: Sequence[str], only: int | None
) -> tuple[SweepRecord, list[Group]]:
    """Return what sweep.json is to say, and the members by what they share; see `train_sweep`."""
    members = make_members(config, given, workdir)
    names = tuple(member.name for member in members)
    record = SweepRecord(config=config.name, overrides=tuple(given), members=names)
    _check_directory(workdir, record)
    if only is not None and not 0 <= only < len(members):
        raise ValueError(f"no member {only}: the sweep has members 0 to {len(members) - 1}")
    runs = {member.name: RunDirectory(workdir / member.name) for member in members}
    # A sweep begun before a field is finished as it was begun, members not started yet
    # included: on one seed's rows, and so in one group.
    for run in [run for run in runs.values() if run.is_started()][:1]:
        members = [m._replace(config=run.kept(m.config, m.overrides)) for m in members]
    groups: dict[tuple[ExperimentConfig, ...], Group] = {}
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
    given: Sequence[str],
    *,
    only: int | None = None,
    num_devices: int | None = None,
    make_ask: Callable[[ExperimentConfig], Ask | None] = lambda config: None,
) -> list[str]:
    """Check a sweep as `training.plan.check_plan` checks a run, group by group; write nothing.

    Args:
      config, workdir, given, only, make_ask: as in `train_sweep`.
      num_devices: as in `check_plan`.

    Returns:
      Lines that say what members inherit, and what was checked.

    Raises:
      ValueError: for anything the user has to mend.
    """
    _, groups = _make_groups(config, place(workdir), given, only)
    lines = _inherited(config, groups)
    for group in groups:
        make_ask(group.members[0].config)
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
    given: Sequence[str],
    *,
    command: str = "",
    only: int | None = None,
    make_ask: Callable[[ExperimentConfig], Ask | None] = lambda config: None,
) -> bool:
    """Trains all members under `workdir`, or number `only` of them; whether they all finished.

    Args:
      config: what its members are made of.
      workdir: the sweep's directory; each member's lies in it.
      given: overrides, whose commas make the members.
      command: as in `training.loop.train`.
      make_ask: from a config to the `ask` of `train`; refuses a task that does not exist.
      only: the one member to train, from 0; None: all of them.

    Raises:
      ValueError: for anything the user has to mend, before compute is spent.
      DivergedError: if no group of members that train together came to its end.
    """
    with distributed.refusing_together():
        workdir = place(workdir)
        record, groups = _make_groups(config, workdir, given, only)
        inherited = _inherited(config, groups)
        # Check all data before the text of the first group is prepared.
        for group in groups:
            for stage in group.shared:
                pipeline.check_data(group.runs[0].with_own_tokenizer(stage.data))
    # All groups before the first is trained: the last one's mistake must not wait for hours.
    plans = [
        make_plan(
            [member.config for member in group.members],
            group.runs,
            overrides=[member.overrides for member in group.members],
        )
        for group in groups
    ]
    asks = [make_ask(plan.configs[0]) for plan in plans]
    if distributed.is_primary_host():
        workdir.mkdir(parents=True, exist_ok=True)
        write_atomically(workdir / "sweep.json", record.to_json())

    console = Console(stderr=True, quiet=not distributed.is_primary_host())
    for line in inherited:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if len(groups) > 1:
        shapes = {tuple(map(program_of, group.shared)) for group in groups}
        seeds = {group.shared[0].data.seed for group in groups}
        console.print(
            f"{len(record.members)} members, {_plural(len(shapes), 'shape')}, "
            f"{_plural(len(seeds), 'data seed')}: one program a shape, one after another"
        )
    num_diverged = 0
    for plan, ask in zip(plans, asks, strict=True):
        names, num_parts = ", ".join(run.name for run in plan.runs), plan.mesh.shape["sweep"]
        spread = f" (over {num_parts} devices)" if num_parts > 1 else ""
        console.print(f"training {names}{spread}", highlight=False)
        try:
            if not loop.train(plan, command=command, ask=ask):
                return False
        except DivergedError as error:
            console.print(str(error), highlight=False, soft_wrap=True)
            num_diverged += 1
    if num_diverged == len(plans):
        raise DivergedError(f"all members diverged: nothing in {workdir} was trained to its end")
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
