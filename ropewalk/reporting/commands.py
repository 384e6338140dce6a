"""Shell commands on the page, which produce its rows again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ropewalk.configs import load_configs
from ropewalk.experiment.records import read_sweep
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils.command_line import format_command, requote
from ropewalk.utils.messages import quoted


def train_command(path: Path) -> str:
    """Return the command that trains the run or sweep in the directory `path`.

    It is a comment if the config's name is none of this repository's: the run was imported, or its
    config is a user's file, whose path the run does not record.
    """
    run, name, file = RunDirectory(path), "train", "config.json"
    if run.is_started():
        config, overrides = run.config.name, run.record["overrides"]
    else:
        name, file, sweep = "sweep", "sweep.json", read_sweep(path)
        config, overrides = sweep.config, sweep.overrides
    if config not in load_configs():
        return f"# no config of ropewalk is named {quoted(config)}; its settings: {path / file}"
    return format_command(name, config, "--workdir", path, *overrides)


def repeat(directories: Mapping[Path, Sequence[RunDirectory]], report: str) -> list[str]:
    """Return the commands that train, evaluate and report: as recorded in runs, or equivalent.

    Args:
      directories: the runs of each directory of the page.
      report: command line that writes the page.
    """
    training, evaluation = [], []
    for path, runs in directories.items():
        recorded = [line for run in runs for line in run.read_commands()]
        evaluated = [line for line in recorded if line.startswith("ropewalk evaluate ")]
        training += [line for line in recorded if line not in evaluated] or [train_command(path)]
        if not evaluated and any(run.results_path.exists() for run in runs):
            evaluated = [format_command("evaluate", path)]
        evaluation += evaluated
    evaluation = evaluation or [format_command("evaluate", *directories)]
    return list(dict.fromkeys([*training, *evaluation, requote(report)]))
