"""Shell lines of the page: what made its rows, and what would make those that are not there."""

import collections
import contextlib
import dataclasses
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import evals
from data.tokenizer import Tokenizer
from experiment import stages
from experiment.run import RunDirectory, find_runs, read_sweep
from model import rotary as rotary_lib
from reporting import curves, heat_maps, page_tables
from reporting.members import TRAINED, Evaluation, Member
from reporting.tables import relative

_SCHEDULES = "trained,dynamic_yarn,dynamic_ntk_aware"
_STEP1_TOKENS = 2**18  # of training rows, unless --documents says otherwise


def command(program: str, *arguments: object) -> str:
    """A shell line."""
    return " ".join(["python", program, *map(_quoted, map(str, arguments))])


def _quoted(argument: str) -> str:
    """As a shell wants it; in double quotes, which read better, where it has single ones."""
    plain = not re.search(r'["$`\\!]', argument)
    return f'"{argument}"' if "'" in argument and plain else shlex.quote(argument)


def train(path: Path) -> str:
    """What makes the run or sweep directory `path`."""
    if (path / "config.json").exists():
        record = json.loads((path / "config.json").read_text(encoding="utf-8"))
        name = RunDirectory(path).config.name
        return command("train.py", name, "--workdir", path, *record["overrides"])
    sweep = read_sweep(path)
    return command("sweep.py", sweep["config"], "--workdir", path, *sweep["overrides"])


def repeat(members: Sequence[Member], dirs: Sequence[Path], out: Path) -> list[str]:
    """Trains, evaluates and reports again."""
    arguments = [] if out == dirs[0] / "report.html" else ["--out", out]
    evaluated = evaluate(members, dirs) or [command("evaluate.py", *dirs)]
    return [*map(train, dirs), *evaluated, command("report.py", *dirs, *arguments)]


class _Asked(NamedTuple):
    """An evaluation as its command says it: None is what needs no saying.

    Attributes:
      task: as an expression.
      schedule: "trained", or relative to training.
      lengths: tokens, ascending; None: those of the config.
      documents: None: as many as the config asks for.
      step: value of --step; None: the newest checkpoint.
    """

    task: str
    schedule: str
    lengths: tuple[int, ...] | None
    documents: int | None
    step: str | None


def evaluate(members: Sequence[Member], dirs: Sequence[Path]) -> list[str]:
    """The commands that the rows are from, as few as say it.

    What `--precision` added to a first round is asked for here as if it had been in that round:
    rows do not tell the two apart.
    """
    by_run: dict[Path, list[Evaluation]] = {}
    for each in (each for member in members for each in member.evaluations):
        by_run.setdefault(each.run.path, []).append(each)
    paths_of: dict[_Asked, list[Path]] = {}
    for path in dirs:
        runs = find_runs([path])
        asked = {run.path: _asked(run, by_run.get(run.path, [])) for run in runs}
        for each in dict.fromkeys(each for own in asked.values() for each in own):
            have = [run.path for run in runs if _has(run, asked[run.path], each)]
            paths_of.setdefault(each, []).extend([path] if len(have) == len(runs) else have)

    grouped: dict[tuple, list[_Asked]] = {}
    for each, paths in paths_of.items():
        grouped.setdefault(tuple(dict.fromkeys(paths)), []).append(each)
    return [
        command("evaluate.py", *paths, *arguments)
        for paths, asked in grouped.items()
        for arguments in _arguments(asked, RunDirectory(find_runs(paths)[0].path))
    ]


def _asked(run: RunDirectory, evaluations: Sequence[Evaluation]) -> list[_Asked]:
    """What one run was asked, task by task."""
    lengths: dict[tuple, set[int]] = {}
    documents: dict[tuple, int] = collections.Counter()
    unlimited = set()  # steps at which as many documents as usual were asked for
    for each in evaluations:
        config = run.config_at(each.step)
        usual = config.evals.documents
        of_text = evals.parse(each.task).kind in ("likelihood", "accuracy")
        if not of_text and each.documents == usual:
            unlimited.add(each.step)
        # Of text there may be fewer documents of the longest contexts than were asked for.
        count = None if of_text else each.documents
        key = each.task, relative(each.rotary, config), each.step, of_text, count
        lengths.setdefault(key, set()).add(each.length)
        documents[key] = max(documents[key], each.documents)
    steps: dict[_Asked, list[int]] = {}
    for key, found in lengths.items():
        task, schedule, step, of_text, _ = key
        config, count = run.config_at(step), documents[key]
        default = set(config.evals.lengths) or {config.data.context_length}
        said_lengths = None if found == default else tuple(sorted(found))
        usual = config.evals.documents
        if task == "step1":
            usual = -(-_STEP1_TOKENS // max(said_lengths or [2**10]))
        # Or there were no more at any length.
        is_usual = count == usual or (of_text and count < usual and step in unlimited)
        asked = _Asked(task, schedule, said_lengths, None if is_usual else count, step=None)
        steps.setdefault(asked, []).append(step)
    return [asked._replace(step=_step(run, found)) for asked, found in steps.items()]


def _step(run: RunDirectory, steps: Sequence[int]) -> str | None:
    ends = [stage.end for stage in stages.split(run.config)]
    if len(ends) > 1 and sorted(steps) == ends:
        return "stages"
    newest = run.steps()[-1:]
    return None if list(steps) == newest else ",".join(map(str, sorted(steps)))


def _has(run: RunDirectory, asked: Sequence[_Asked], each: _Asked) -> bool:
    """Whether the command for `each` made rows of this run, or could not have."""
    if each in asked:
        return True
    config = run.config_at(run.find_step()) if run.steps() else run.config
    try:
        given = rotary_lib.inherited(config.model.rotary, config.data.context_length)
        schedule = rotary_lib.parse_pattern(each.schedule, given)
        dataclasses.replace(config.model, rotary=schedule)
    except ValueError:
        return each.schedule != TRAINED  # it cannot take that schedule
    return schedule == config.model.rotary and each._replace(schedule=TRAINED) in asked


def _arguments(asked: Iterable[_Asked], run: RunDirectory) -> list[list[object]]:
    """Flags of as few commands as ask all of this."""
    schedules: dict[tuple, list[str]] = {}
    for task, schedule, *rest in asked:
        schedules.setdefault((task, *rest), []).append(schedule)
    tasks: dict[tuple, list[str]] = {}
    for (task, *rest), names in schedules.items():
        alone = task if task == "step1" else ""  # --step1 chooses its own schedules
        tasks.setdefault((alone, tuple(sorted(names, key=_trained_first)), *rest), []).append(task)
    usual = {evals.parse(name).expression for name in run.config.evals.tasks}
    found = []
    for (alone, names, lengths, documents, step), of_tasks in tasks.items():
        flags: list[object] = []
        candidates = [name for name in names if name != TRAINED]
        if alone and candidates:
            flags += ["--step1", _step1(candidates)]
        elif set(of_tasks) != usual:
            flags += ["--tasks", ",".join(of_tasks)]
        if names != (TRAINED,) and not alone:
            flags += ["--rotary", ",".join(names)]
        if lengths:
            flags += ["--lengths", ",".join(map(str, lengths))]
        if documents:
            flags += ["--documents", documents]
        found.append(flags + (["--step", step] if step else []))
    return found


def _trained_first(schedule: str) -> bool:
    return schedule != TRAINED


def _step1(schedules: Sequence[str]) -> str:
    """The value of --step1: `rope(base=500)` is 500 there."""
    bases = [re.fullmatch(r"rope\(base=([^,)]+)\)", schedule) for schedule in schedules]
    if not all(bases):
        return ",".join(schedules)
    return "base=" + ",".join(sorted((match[1] for match in bases if match), key=float))


def missing(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """What the configs ask for and is not there yet, each with the command that makes it."""
    training = " && ".join(map(train, dirs))
    evaluation = command("evaluate.py", *dirs)
    untrained, unasked, no_loss = [], [], []
    no_task: dict[str, list[str]] = {}
    for member in members:
        if member.superseded:  # asked for with --step, or not at all
            continue
        trained = any(run.steps() for run in member.runs)
        if not member.own:
            (unasked if trained else untrained).append(member.label)
        else:
            asked = {evals.parse(task) for task, _ in member.own}
            for name in member.config.evals.tasks:
                task = evals.parse(name)
                if task not in asked and (_reads_text(member) or task.kind == "retrieval"):
                    no_task.setdefault(name, []).append(member.label)
        if trained and not member.losses:
            no_loss.append(member.label)
    found = [
        (untrained, "No checkpoint yet", training),
        (no_loss, "No training metrics yet", training),
        (unasked, "Not evaluated yet", evaluation),
    ]
    for name, who in no_task.items():
        found.append((who, f"No {name} yet", command("evaluate.py", *dirs, "--tasks", name)))
    return [(f"{what}: {_names(who, members)}. Run:", line) for who, what, line in found if who]


def _names(who: Sequence[str], members: Sequence[Member]) -> str:
    all_of_many = len(who) == len(members) > 4
    return f"all {len(who)} members" if all_of_many else ", ".join(who)


def _reads_text(member: Member) -> bool:
    return member.config.data.source != "retrieval"


def further(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """Figures that nobody asked for yet, each with the command that measures it."""
    if not any(member.own for member in members):
        return []
    length = max(member.trained_length for member in members)

    def ask(*arguments: object) -> str:
        return command("evaluate.py", *dirs, *arguments)

    found = []
    if not curves.by_length_tasks(members):
        lengths = f"{length},{2 * length},{4 * length}"
        found.append(("Contexts longer than the trained one.", ask("--lengths", lengths)))
    if not heat_maps.matrix_keys(members):
        line = ask("--lengths", f"{length},{2 * length}", "--rotary", _SCHEDULES)
        found.append(("Other schedules than the trained one: a matrix.", line))
    shown = {plot.name for plot, _ in curves.declared(members)} | {*page_tables.shares(members)}
    shown |= {"places"} if heat_maps.place_tasks(members) else set()
    for name, task in evals.all_tasks().items():
        fitting = _fitting(members[0], name, length)
        suggestion = task.suggestion(fitting) if fitting else None
        if suggestion and suggestion.shows not in shown:
            lines = [ask(*arguments) for arguments in suggestion.calls]
            found.append((suggestion.what, " && ".join(lines)))
    return found


def _fitting(member: Member, name: str, length: int) -> int | None:
    """The trained length, or the first of its doubles at which retrieval can be asked; or None."""
    path = member.runs[0].tokenizer_path
    for doubled in (length << octave for octave in range(6)):
        with contextlib.suppress(ValueError):
            task = evals.parse(name)
            if task.kind != "retrieval":
                return length if _reads_text(member) else None
            if path.exists():
                task.check(evals.asked(member.config, Tokenizer(path), doubled))
                return doubled
    return None
