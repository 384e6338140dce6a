"""Shell commands on the page, which produce its rows again."""

from collections.abc import Sequence
from pathlib import Path

from ropewalk.experiment.records import read_sweep
from ropewalk.experiment.run import RunDirectory, find_runs
from ropewalk.utils.command_line import format_command, requote


def train_command(path: Path) -> str:
    """Return the command that trains the run or sweep in the directory `path`."""
    run = RunDirectory(path)
    if run.is_started():
        config, overrides = run.config.name, run.record["overrides"]
        return format_command("train", config, "--workdir", path, *overrides)
    sweep = read_sweep(path)
    return format_command("sweep", sweep.config, "--workdir", path, *sweep.overrides)


def repeat(dirs: Sequence[Path], report: str) -> list[str]:
    """Return the commands that train, evaluate and report: as recorded in runs, or equivalent."""
    training, evaluation = [], []
    for path in dirs:
        runs = find_runs([path])
        recorded = [line for run in runs for line in run.read_commands()]
        evaluated = [line for line in recorded if line.startswith("ropewalk evaluate ")]
        training += [line for line in recorded if line not in evaluated] or [train_command(path)]
        if not evaluated and any(run.results_path.exists() for run in runs):
            evaluated = [format_command("evaluate", path)]
        evaluation += evaluated
    evaluation = evaluation or [format_command("evaluate", *dirs)]
    return list(dict.fromkeys([*training, *evaluation, requote(report)]))
