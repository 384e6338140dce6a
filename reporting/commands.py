"""Shell lines of the page: what made its rows, and what would make those that are not there."""

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import evals
from data.sources import source_class
from experiment.records import read_sweep
from experiment.run import RunDirectory, find_runs
from reporting import curves, heat_maps, inside, page_tables
from reporting.members import Member

_VARIANTS = "trained,dynamic_yarn,dynamic_ntk_aware"


def command(program: str, *arguments: object) -> str:
    """A shell line."""
    return " ".join(["python", program, *map(_quoted, map(str, arguments))])


def _quoted(argument: str) -> str:
    """As a shell wants it; in double quotes, which read better, where it has single ones."""
    plain = not re.search(r'["$`\\!]', argument)
    return f'"{argument}"' if "'" in argument and plain else shlex.quote(argument)


def train(path: Path) -> str:
    """What makes the run or sweep directory `path`."""
    run = RunDirectory(path)
    if run.is_started():
        given = run.record["overrides"]
        return command("train.py", run.config.name, "--workdir", path, *given)
    sweep = read_sweep(path)
    return command("sweep.py", sweep.config, "--workdir", path, *sweep.overrides)


def repeat(dirs: Sequence[Path], report: str) -> list[str]:
    """Trains, evaluates and reports again: the lines that were typed, as far as runs hold them."""
    training, evaluation = [], []
    for path in dirs:
        runs = find_runs([path])
        typed = [_requoted(line) for run in runs for line in run.read_commands()]
        evaluated = [line for line in typed if line.startswith("python evaluate.py ")]
        training += [line for line in typed if line not in evaluated] or [train(path)]
        if not evaluated and any(run.results_path.exists() for run in runs):
            evaluated = [command("evaluate.py", path)]
        evaluation += evaluated
    evaluation = evaluation or [command("evaluate.py", *dirs)]
    return list(dict.fromkeys([*training, *evaluation, _requoted(report)]))


def _requoted(line: str) -> str:
    try:
        _, program, *arguments = shlex.split(line)
    except ValueError:  # not typed, but written into the file since: shown as it stands
        return line
    return command(Path(program).name, *arguments)


def missing(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """What the configs ask for and is not there yet, each with the command that makes it."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for member in members:
        if not member.superseded:  # asked for with --step, or not at all
            for each in _lacks(member, dirs):
                lacking.setdefault(each, []).append(member.label)
    found = []
    for (what, line), who in lacking.items():
        all_of_many = len(who) == len(members) > 4
        names = f"all {len(who)} members" if all_of_many else ", ".join(who)
        found.append((f"{what}: {names}. Run:", line))
    return found


def _lacks(member: Member, dirs: Sequence[Path]) -> Iterator[tuple[str, str]]:
    training = " && ".join(map(train, dirs))
    trained = any(run.steps() for run in member.runs)
    if not trained and not member.own:
        yield "No checkpoint yet", training
        return
    if trained and not member.losses:
        yield "No training metrics yet", training
    if not member.own:
        if not member.diverged:
            yield "Not evaluated yet", command("evaluate.py", *dirs)
        return
    asked = {evals.parse(task) for task, _ in member.own}
    for name in member.config.evals.tasks:
        task = evals.parse(name)
        if task not in asked and (_reads_text(member) or task.kind == "retrieval"):
            yield f"No {name} yet", command("evaluate.py", *dirs, "--tasks", name)


def _reads_text(member: Member) -> bool:
    return source_class(member.config.data.source).has_text


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
        line = ask("--lengths", f"{length},{2 * length}", "--rotary", _VARIANTS)
        found.append(("Other variants than the trained one: a matrix.", line))
    if not any(map(inside.looked, members)):
        line = command("-m", "probes", *dirs)
        found.append(("What goes on inside: where each head's advantage ends, and more.", line))
    shown = {plot.name for plot, _ in curves.declared(members)} | {*page_tables.shares(members)}
    shown |= {"places"} if heat_maps.place_tasks(members) else set()
    for name, task in evals.all_tasks().items():
        suggestion = task.suggestion(length)
        if suggestion and not suggestion.of_text:
            fitting = _fitting(members[0], name, length)
            suggestion = task.suggestion(fitting) if fitting else None
        elif not all(map(_reads_text, members)):
            continue
        if suggestion and suggestion.shows not in shown:
            lines = [ask(*arguments) for arguments in suggestion.calls]
            found.append((suggestion.what, " && ".join(lines)))
    return found


def _fitting(member: Member, name: str, length: int) -> int | None:
    """The trained length, or the first of its doubles at which it can be asked; None if unknown."""
    run = member.runs[0]
    for doubled in (length << octave for octave in range(6)) if run.tokenizer_path.exists() else ():
        with contextlib.suppress(ValueError):
            evals.parse(name).check(evals.asked(member.config, run.tokenizer, doubled))
            return doubled
    return None
