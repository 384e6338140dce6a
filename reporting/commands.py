"""Shell commands on the page: those that produced its rows, and those that would add results."""

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import evals
from experiment.records import read_sweep
from experiment.run import RunDirectory, find_runs
from reporting import curves, heat_maps, inside
from reporting.members import Member
from reporting.task_view import all_views, view_of

_VARIANTS = "trained,dynamic_yarn,dynamic_ntk_aware"


def format_command(program: str, *arguments: object) -> str:
    """Return a shell command line."""
    return " ".join(["python", program, *map(_quote, map(str, arguments))])


def _quote(argument: str) -> str:
    """Quote for a shell; in double quotes, which are easier to read, around single quotes."""
    plain = not re.search(r'["$`\\!]', argument)
    return f'"{argument}"' if "'" in argument and plain else shlex.quote(argument)


def train_command(path: Path) -> str:
    """Return the command that trains the run or sweep in the directory `path`."""
    run = RunDirectory(path)
    if run.is_started():
        config, overrides = run.config.name, run.record["overrides"]
        return format_command("train.py", config, "--workdir", path, *overrides)
    sweep = read_sweep(path)
    return format_command("sweep.py", sweep.config, "--workdir", path, *sweep.overrides)


def repeat(dirs: Sequence[Path], report: str) -> list[str]:
    """Return the commands that train, evaluate and report: as recorded in runs, or equivalent."""
    training, evaluation = [], []
    for path in dirs:
        runs = find_runs([path])
        recorded = [_requote(line) for run in runs for line in run.read_commands()]
        evaluated = [line for line in recorded if line.startswith("python evaluate.py ")]
        training += [line for line in recorded if line not in evaluated] or [train_command(path)]
        if not evaluated and any(run.results_path.exists() for run in runs):
            evaluated = [format_command("evaluate.py", path)]
        evaluation += evaluated
    evaluation = evaluation or [format_command("evaluate.py", *dirs)]
    return list(dict.fromkeys([*training, *evaluation, _requote(report)]))


def _requote(line: str) -> str:
    try:
        _, program, *arguments = shlex.split(line)
    except ValueError:  # the file was edited: show the line unchanged
        return line
    return format_command(Path(program).name, *arguments)


def list_missing(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """Return what the configs request and is missing, each with the command that produces it."""
    labels: dict[tuple[str, str], list[str]] = {}
    for member in members:
        if not member.superseded:  # earlier stages are evaluated only with --step
            for item in _missing(member, dirs):
                labels.setdefault(item, []).append(member.label)
    lines = []
    for (text, command), names in labels.items():
        is_all = len(names) == len(members) > 4
        subject = f"all {len(names)} members" if is_all else ", ".join(names)
        lines.append((f"{text}: {subject}. Run:", command))
    return lines


def _missing(member: Member, dirs: Sequence[Path]) -> Iterator[tuple[str, str]]:
    training = " && ".join(map(train_command, dirs))
    has_checkpoint = any(run.steps() for run in member.runs)
    if not has_checkpoint and not member.trained:
        yield "No checkpoint yet", training
        return
    if has_checkpoint and not member.losses:
        yield "No training metrics yet", training
    if not member.trained:
        if not member.diverged:
            yield "Not evaluated yet", format_command("evaluate.py", *dirs)
        return
    evaluated = {evals.parse(task) for task, _ in member.trained}
    for name in member.config.evals.tasks:
        task = evals.parse(name)
        if task not in evaluated and (member.config.data.has_text or task.kind == "retrieval"):
            yield f"No {name} yet", format_command("evaluate.py", *dirs, "--tasks", name)


def suggest(members: Sequence[Member], dirs: Sequence[Path]) -> list[tuple[str, str]]:
    """Return further figures, each with the command that measures it."""
    if not any(member.trained for member in members):
        return []
    length = max(member.trained_length for member in members)

    def evaluate(*arguments: object) -> str:
        return format_command("evaluate.py", *dirs, *arguments)

    lines = []
    if not curves.by_length_tasks(members):
        command = evaluate("--lengths", f"{length},{2 * length},{4 * length}")
        lines.append(("Contexts longer than the trained length.", command))
    if not heat_maps.matrix_keys(members):
        command = evaluate("--lengths", f"{length},{2 * length}", "--rotary", _VARIANTS)
        lines.append(("A matrix of training and evaluation variants.", command))
    if not any(map(inside.read_zeros, members)):
        command = format_command("-m", "probes", *dirs)
        lines.append(("Attention analysis: the empirical B(m) of each head, and more.", command))
    plots = {plot.name for plot, _ in curves.task_plots(members)}
    evaluated = {type(view_of(m.task)) for member in members for m in member.measurements}
    has_text = all(member.config.data.has_text for member in members)
    for name, view in all_views().items():
        is_shown = view.plot.name in plots if view.plot else view in evaluated
        if view.suggestion and not is_shown and (has_text or not view.needs_text):
            n = length if view.needs_text else _fitting_length(members[0], name, length)
            lengths = dict(half=n // 2, trained=n, double=2 * n, quadruple=4 * n)
            text, *arguments = view.suggestion
            commands = [evaluate(*line.format(**lengths).split()) for line in arguments]
            lines += [(text, " && ".join(commands))] if n else []
    return lines


def _fitting_length(member: Member, name: str, length: int) -> int:
    """Return the first of 1, 2, 4 ... 32 trained lengths that holds the task; 0 if unknown."""
    run = member.runs[0]
    for doubled in (length << octave for octave in range(6)) if run.tokenizer_path.exists() else ():
        with contextlib.suppress(ValueError):
            evals.parse(name).check(evals.task_context(member.config, run.tokenizer, doubled))
            return doubled
    return 0
