"""Overrides of a config, as typed, and grids of them.

overrides: any field of the config, by its dotted path (--help-fields lists them)
  train.num_steps=200                      a number (1e4 and 10_000 are numbers too)
  model.rotary.base=500                    a field of a nested object
  "model.rotary=yarn(base=1e4, factor=8, original_context_length=512)"
                                           a whole variant, as an expression
  "model.rotary=[rope(base=1e4),nope]"     a pattern, repeated over the layers
  "model.rotary=[[rope(base=10),nope]]"    a list within it: over a layer's key/value heads
  "model.rotary=mine.py:Bent(strength=2)"  a variant in a file of your own
  model.window=32  data.tokenizer=none     an optional value; none leaves it out
  evals.tasks=[kv,lines]                   a list
  train.tracking=wandb,tensorboard         the same: these fields make no members
  seed=1                                   of the initialization, and of the rows unless data.seed
                                           is given too
  mesh.data=2 mesh.fsdp=-1                 devices along an axis; -1: the rest of them
  "start_from='runs/demo/base=10,num_heads=4'"
                                           parameters of another run (runs/...@STEP: of that step),
                                           with its model and tokenizer: only fields of the model
                                           that are given here differ
  "stages=[[data.context_length=512,train.num_steps=200],[...]]"
                                           stages after the first, each with its own changes

sweeps: a comma makes members, several commas a grid
  model.rotary.base=10,100,1e4             three members, base=10, base=100 and base=1e4
  model.rotary.base=10,1e4 seed=0,1,2      six members; a seed's own initialization and rows
  model.rotary.base=10,1e4 seed=0,1,2 data.seed=0
                                           six members; all read the same rows
  "model.rotary=rope(base=500),nope"       two variants
  train.learning_rate=1e-3,3e-3            two learning rates
  start_from=RUN model.rotary.base=10,100  all members from the parameters of one run
  start_from=SWEEP                         each member from that of its name in another sweep; the
                                           same command with another --workdir trains a sweep longer
  "start_from='a,b'"                       quotes around a value, or around one of a list, keep its
                                           commas; a path that exists needs none
Without a comma, the config's own members are used, if it has any.
  --random 20 "train.learning_rate=log(1e-4,1e-2)"
                                           20 members at random: log(LOW,HIGH) is even in the
                                           logarithm, uniform(LOW,HIGH) in the value. With a grid,
                                           each of its members gets the same 20 draws
Text of yours: the config own_text, or data.source=files, with data.path=FOLDER (docs/own_text.md)
"""

import dataclasses
import hashlib
import itertools
import math
import os
import random
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ropewalk.data.sources import source_class
from ropewalk.experiment.config import (
    PATH_FIELDS,
    ExperimentConfig,
    config_digest,
    is_operational,
)
from ropewalk.experiment.dotted import apply as apply  # part of the command line, for its callers
from ropewalk.experiment.dotted import fields
from ropewalk.experiment.inherit import inherit
from ropewalk.experiment.records import SweepRecord, read_sweep
from ropewalk.experiment.run import RunDirectory, split_start
from ropewalk.experiment.stages import split
from ropewalk.utils.expressions import allow_files, literal, split_commas, unquote
from ropewalk.utils.files import check_links
from ropewalk.utils.messages import one_line
from ropewalk.utils.paths import as_path, in_bucket

# Files and `--help` teach the same language: it is written down once, above. (-OO removes it.)
_, OVERRIDES_HELP, SWEEP_HELP = (__doc__ or "\n\n\n\n").split("\n\n")

_MAX_MEMBERS = 1000  # of a sweep; a typing error may make billions


# Fields that hold expressions; the text of any other, a path say, permits no code.
_EXPRESSION_FIELDS = ("model.rotary", "data.retrieval_tasks", "train.eval_tasks", "evals.tasks")


def typed(override: str) -> str:
    """Return an override of a command line; permit the files of code that its value names."""
    field, _, value = override.partition("=")
    if field in _EXPRESSION_FIELDS:
        allow_files(value)
    return override


def describe_replaced(overrides: Sequence[str]) -> list[str]:
    """Return a line for each override of a command line that a later one of its field replaces."""
    last = {override.partition("=")[0]: override for override in overrides}
    return [
        f"{one_line(old, 60)} is replaced by {one_line(new, 60)}"
        for old in overrides
        if (new := last[old.partition("=")[0]]) != old
    ]


# The path of a file of code before the class in it: names of members have the class only.
_CODE_PATH = re.compile(r"[^()\[\],=]*\.py:(?=\w)")


def member_name(varying: Sequence[str]) -> str:
    """Return the directory name of a member: the varying values, `base=10,seed=1`.

    Fields of one name have their full paths, `seed=1,data.seed=0`. A class of a user's file has its
    name, without the file's. A long name is cut and ends in a hash of the full name.
    """
    parts = []
    paths = [override.partition("=")[0] for override in varying]
    short = [path.rpartition(".")[2] for path in paths]
    for path, name, override in zip(paths, short, varying, strict=True):
        value = _CODE_PATH.sub("", override.partition("=")[2])
        if value.startswith("["):  # checkpoints cannot lie where a path has brackets
            value = "+".join(map(_unbracketed, split_commas(value[1:-1])))
        value = unquote(value)
        parts.append(f"{name if short.count(name) == 1 else path}={value}")
    # Commas, "=" and dots are fine in paths; globs are not in orbax's, slashes and spaces in none.
    name = re.sub(r"[/*?\[\]]", "_", ",".join(parts)).replace(" ", "")
    if len(name) <= 120:
        return name
    return f"{name[:110]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _unbracketed(value: str) -> str:
    """Write a list within a list (heads of a layer) as `(a+b)`."""
    return f"({'+'.join(split_commas(value[1:-1]))})" if value.startswith("[") else value


def _name_members(members: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Return each member's overrides with a name made of those that not all members have."""
    common = set.intersection(*map(set, members))
    return [(member_name([o for o in member if o not in common]), member) for member in members]


def grid(overrides: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the members of a sweep: every combination of the comma-separated values.

    Returns:
      Name and overrides of each member.

    Raises:
      ValueError: for a bracket that is not closed, or more than 1000 members.
    """
    choices = []
    for override in overrides:
        path, _, text = override.partition("=")
        try:
            # Members that differ in nothing that decides numbers would be one run.
            values = [text] if is_operational(path) else split_commas(text)
        except ValueError as error:
            raise ValueError(f"{one_line(path, 60)}: {error}") from error
        if len(values) > 1 and not all(map(str.strip, values)):
            raise ValueError(f"{one_line(override, 60)}: a value is missing beside a comma")
        if path in PATH_FIELDS:
            values = _join_paths(values)
        choices.append([f"{path}={value.strip()}" for value in values])
    if math.prod(map(len, choices)) > _MAX_MEMBERS:
        raise ValueError(f"the values listed make more than {_MAX_MEMBERS:,} members; list fewer")
    varies = [len(values) > 1 for values in choices]
    return [
        (member_name(list(itertools.compress(combination, varies))), list(combination))
        for combination in itertools.product(*choices)
    ]


# A range of values, from which `draw` takes some at random.
_RANGE = re.compile(r"[^=]+=(log|uniform)\(([^(),]+),([^(),]+)\)")


def draw(
    config: ExperimentConfig, overrides: Sequence[str], number: int, seed: int
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the overrides that hold no range, and `number` draws of those that do.

    The draws of a field depend on its name, its range and the seed only: a larger number adds to
    them, and so does another field.

    Raises:
      ValueError: if no override holds a range, or a range has no or too few values.
    """
    ranges = [override for override in overrides if _RANGE.fullmatch(override)]
    if number > _MAX_MEMBERS:
        raise ValueError(f"--random {number}: a sweep has at most {_MAX_MEMBERS:,} members")
    if not ranges:
        raise ValueError("--random draws from FIELD=log(LOW,HIGH) or FIELD=uniform(LOW,HIGH)")
    kinds = {field.name: field.kind for field in fields(config)}
    columns = [_values(override, kinds, seed) for override in ranges]
    draws = dict.fromkeys(itertools.islice(zip(*columns, strict=True), 100 * number))
    if len(draws) < number:
        raise ValueError(f"--random {number}: the ranges have only {len(draws)} different values")
    return [x for x in overrides if x not in ranges], list(draws)[:number]


def _values(override: str, kinds: Mapping[str, str], seed: int) -> Iterator[str]:
    """Yield overrides with values at random from a range, of four digits or whole, without end."""
    field = override.partition("=")[0]
    match, generator = _RANGE.fullmatch(override), random.Random(f"{seed} {field}")
    assert match
    is_log, bounds = match[1] == "log", [literal(bound) for bound in match.groups()[1:]]
    low, high = (float(x) if isinstance(x, int | float) else math.nan for x in bounds)
    if not ((0 if is_log else -math.inf) < low < high < math.inf):
        raise ValueError(f"{override}: a range needs {'0 < ' * is_log}LOW < HIGH")
    is_whole = "whole number" in kinds.get(field, "")
    start, end = low, high + is_whole
    while True:
        share = generator.random()
        value = start * (end / start) ** share if is_log else start + (end - start) * share
        yield f"{field}={min(math.floor(value), int(high)) if is_whole else f'{value:.4g}'}"


# Fields that other fields leave unused: when they have an effect, and what gives them one.
_USED: dict[str, tuple[Callable[[ExperimentConfig], bool], str]] = {
    "train.decay_fraction": (lambda c: c.train.schedule == "wsd", "train.schedule=wsd"),
    "train.final_fraction": (lambda c: c.train.schedule != "constant", "train.schedule=cosine"),
    "data.vocab_size": (lambda c: c.data.tokenizer is None, "data.tokenizer=none"),
    "data.retrieval_fraction": (lambda c: c.data.has_text, "a source of text, such as local"),
    "data.retrieval_tasks": (
        lambda c: c.data.retrieval_fraction > 0 or not c.data.has_text,
        "data.retrieval_fraction=SHARE",
    ),
    "data.path": (
        lambda c: source_class(c.data.source).needs_path,
        "a source that reads files, such as data.source=files, or the config own_text",
    ),
    "data.long_tokens": (lambda c: c.data.long_fraction is not None, "data.long_fraction=SHARE"),
    "model.align_query_key": (lambda c: c.start_from is None, "it in a run without start_from"),
    "members": (lambda c: False, "comma lists, such as model.rotary.base=10,100"),
}


def check_used(config: ExperimentConfig, overrides: Sequence[str]) -> None:
    """Raise ValueError for an override of a field that has no effect in any stage of `config`.

    Args:
      config: a run; a text that its file names must have an effect, too, beside the file's source.
      overrides: those of the command line; the stages' are checked too.
    """
    keeps_source = not any(override.startswith("data.source=") for override in overrides)
    config_fields = ["data.path"] * (keeps_source and config.data.path is not None)
    for override in itertools.chain(overrides, config_fields, *config.stages):
        name = override.partition("=")[0]
        is_used, remedy = _USED.get(name, (lambda _: True, ""))
        if not any(is_used(stage.config) for stage in split(config)):
            raise ValueError(f"{name} has no effect here; use {remedy}, or leave {name} out")


def _join_paths(parts: Sequence[str]) -> list[str]:
    """Join parts of a comma list that make an existing path, as members' names have commas."""
    paths = []
    while parts:
        joined = (",".join(parts[:count]) for count in range(len(parts), 1, -1))
        exists = (p for p in joined if not in_bucket(p) and os.path.exists(split_start(p)[0]))
        path = next(exists, parts[0])
        paths.append(path)
        parts = parts[path.count(",") + 1 :] if path != parts[0] else parts[1:]
    return paths


def _start_of(override: str, run: RunDirectory) -> str:
    """Return an override that sets `start_from` to a sweep with the member called as `run`.

    Other overrides are returned as they are.

    Raises:
      ValueError: if that sweep has no such member.
    """
    field, _, text = override.partition("=")
    if field != "start_from":
        return override
    start, step = split_start(unquote(text))
    path = as_path(start)
    member = path / run.name
    # The sweep may have been deleted since.
    is_known = run.is_started() and str(run.config.start_from).startswith(f"{member}@")
    if not is_known and not (path / "sweep.json").exists():
        return override
    if not is_known and run.name not in (names := read_sweep(path).members):
        raise ValueError(
            f"start_from={path}: that sweep has no member {run.name}; list the values that it was "
            f"trained with ({one_line(', '.join(names), 150)}), or start from one of its members"
        )
    return f"start_from={member}" + ("" if step is None else f"@{step}")


class Member(NamedTuple):
    """One member of a sweep: its run, its overrides, and the config that they make."""

    run: RunDirectory
    overrides: Sequence[str]
    config: ExperimentConfig

    @property
    def name(self) -> str:
        """Name of its directory: the varying values."""
        return self.run.path.name


def _check_common(config: ExperimentConfig, common: Sequence[str]) -> None:
    """Raise ValueError if overrides for all members of `config` set what its members set."""
    varied = {override.partition("=")[0] for member in config.members for override in member}
    for override in common:
        path, _, value = override.partition("=")
        if any(f"{name}.".startswith(f"{path}.") for name in varied):
            raise ValueError(
                f"{one_line(override, 60)}: the members of {config.name} differ in this field; "
                f"list values of your own ({path}={one_line(value, 40)},VALUE), or use train.py"
            )


class Sweep(NamedTuple):
    """Members that one command trains; a single run is a sweep of one member.

    Attributes:
      config: config of the experiment file.
      workdir: directory of the run, or of the sweep.
      members: members to train.
      record: content of sweep.json; None for a single run.
    """

    config: ExperimentConfig
    workdir: Path
    members: Sequence[Member]
    record: SweepRecord | None = None

    @property
    def is_whole(self) -> bool:
        """True if all members of the sweep are trained."""
        return self.record is None or len(self.members) == len(self.record.members)

    def check_workdir(self) -> None:
        """Raise ValueError if `workdir` holds another sweep, or a run instead of a sweep."""
        if self.record is None:
            return
        check_links(self.workdir, self.record.members)
        if (self.workdir / "sweep.json").exists():
            other = read_sweep(self.workdir)
            if _deciding(other) != _deciding(self.record):
                if other.members == self.record.members:  # says which field differs
                    for member in self.members:
                        member.run.check_resumable(member.config, self.workdir)
                command = one_line(shlex.join([other.config, *other.overrides]), 150)
                raise ValueError(
                    f"{self.workdir} holds another sweep, {command}; use another --workdir, or "
                    "delete that directory"
                )
        if (self.workdir / "config.json").exists():
            raise ValueError(
                f"{self.workdir} holds a run; use another --workdir, or train.py to continue it"
            )


def _deciding(record: SweepRecord) -> SweepRecord:
    """Return a record without what does not change the numbers of a run, overrides in order."""
    overrides = (o for o in record.overrides if not is_operational(o.partition("=")[0]))
    return dataclasses.replace(record, overrides=tuple(sorted(overrides)), configs=())


def single_run(config: ExperimentConfig, workdir: str | Path, overrides: Sequence[str]) -> Sweep:
    """Return what train.py trains. Raises ValueError as `inherit` does."""
    workdir = as_path(workdir)
    run = RunDirectory(workdir)
    return Sweep(config, workdir, [Member(run, overrides, inherit(config, overrides, run))])


def make_sweep(
    config: ExperimentConfig,
    workdir: str | Path,
    overrides: Sequence[str],
    *,
    only: int | None = None,
    number: int | None = None,
    draw_seed: int = 0,
) -> Sweep:
    """Return what sweep.py trains: all members, or member number `only` (from 0).

    Args:
      config: config of the experiment file.
      workdir: the sweep's directory.
      overrides: overrides, whose commas and ranges make the members.
      only: the one member to train; None: all.
      number: how many values to draw from the ranges (`draw`); None: there are no ranges.
      draw_seed: seed of the draws.

    Raises:
      ValueError: as `make_members` and `draw`, or if there is no such member.
    """
    workdir, fixed, draws, flags = as_path(workdir), overrides, [()], []
    if number:
        flags = [f"--random={number}", f"--random-seed={draw_seed}"]
        fixed, draws = draw(config, overrides, number, draw_seed)
    elif ranges := list(filter(_RANGE.fullmatch, overrides)):
        raise ValueError(f"{ranges[0]} is a range; add --random N, the number of values to draw")
    members = make_members(config, fixed, workdir, draws)
    record = SweepRecord(
        config=config.name,
        overrides=(*flags, *overrides),
        members=tuple(member.name for member in members),
        configs=tuple(config_digest(member.config, None) for member in members),
    )
    if only is not None:
        if not 0 <= only < len(members):
            raise ValueError(f"no member {only}: the sweep has members 0 to {len(members) - 1}")
        members = [members[only]]
    return Sweep(config, workdir, members, record)


def make_members(
    config: ExperimentConfig,
    overrides: Sequence[str],
    workdir: Path | None = None,
    draws: Sequence[Sequence[str]] = ((),),
) -> list[Member]:
    """Return the members that `overrides` list, or else those of the config.

    Args:
      config: config of the experiment file.
      overrides: overrides, whose commas make the members.
      workdir: the sweep's directory: each member inherits from the run it starts from. None: no run
        is looked up, and models are those of `config` and the overrides.
      draws: further overrides; there is a member of each of them for each of the others.

    Raises:
      ValueError: if an override is wrong, two members would be the same, or a run that one starts
        from is not there.
    """

    def make(name: str, changes: Sequence[str]) -> Member:
        if workdir is None:
            return Member(RunDirectory(name), changes, apply(config, changes))
        run = RunDirectory(workdir / name)
        changes = [_start_of(override, run) for override in changes]
        return Member(run, changes, inherit(config, changes, run))

    choices = grid(overrides)
    if len(choices) == 1 and config.members:
        common = choices[0][1]
        _check_common(config, common)
        choices = [(name, [*member, *common]) for name, member in _name_members(config.members)]
    if any(draws):
        choices = _name_members([[*others, *more] for _, others in choices for more in draws])
    if len(choices) == 1:
        apply(config, choices[0][1])  # what is wrong with them says more than that they do not vary
        raise ValueError(
            "nothing varies: list values with commas (model.rotary.base=10,10000), or use train.py"
        )
    members = list(itertools.starmap(make, choices))
    for left, right in itertools.combinations(members, 2):
        if left.name == right.name and left.config != right.config:
            raise ValueError(f"two members would be called {left.name}; rename one of the classes")
        if left.config == right.config:
            raise ValueError(
                f"{left.name} and {right.name} are the same member; list each value once"
            )
        # Fresh parameters are all that a seed decides here, and these members have none.
        start = left.config.start_from
        if start and dataclasses.replace(left.config, seed=right.config.seed) == right.config:
            raise ValueError(
                f"{left.name} and {right.name} would be the same run: with start_from no parameter "
                "depends on seed; leave data.seed to it, or list values of data.seed"
            )
    return members
