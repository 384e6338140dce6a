"""Shell commands on the page: those that produced its rows, and those for missing ones."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import evals
from experiment.records import read_sweep
from experiment.run import RunDirectory, find_runs
from reporting.members import Member
from utils.command_line import format_command, requote


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
        recorded = [line for run in runs for line in run.read_commands()]
        evaluated = [line for line in recorded if line.startswith("python evaluate.py ")]
        training += [line for line in recorded if line not in evaluated] or [train_command(path)]
        if not evaluated and any(run.results_path.exists() for run in runs):
            evaluated = [format_command("evaluate.py", path)]
        evaluation += evaluated
    evaluation = evaluation or [format_command("evaluate.py", *dirs)]
    return list(dict.fromkeys([*training, *evaluation, requote(report)]))


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
