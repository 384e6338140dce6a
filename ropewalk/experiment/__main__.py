"""Lists runs, and deletes checkpoints that are no longer needed.

ropewalk runs                       lists runs/: config, variant, seed, steps, last loss, size
ropewalk runs list DIR ...          the same of other folders
ropewalk runs prune runs --keep 1   deletes all but the newest checkpoint of each run;
                                    with --optimizer also its optimizer state;
                                    with --dry-run it only prints what it would delete
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ropewalk.experiment.items import check_newest_config, metrics_damage
from ropewalk.experiment.records import read_sweep
from ropewalk.experiment.run import RunDirectory
from ropewalk.experiment.stages import split
from ropewalk.model import rotary
from ropewalk.utils.command_line import Parser, at_least, exit_with
from ropewalk.utils.locks import try_lock
from ropewalk.utils.messages import counted
from ropewalk.utils.paths import remove
from ropewalk.utils.text_table import TextTable, print_tables


def main() -> int:
    """Run the command line; return the exit status."""
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    def add(name: str, text: str, **dirs: Any) -> Callable[..., object]:
        option = commands.add_parser(name, help=text, description=text).add_argument
        option("dirs", type=Path, metavar="DIR", **dirs)
        return option

    add("list", "list the runs below folders", nargs="*", default=[Path("runs")])
    option = add("prune", "delete old checkpoints of the runs below folders", nargs="+")
    text = "checkpoints to keep of each run (default: 1)"
    option("--keep", type=at_least(1), default=1, metavar="N", help=text)
    text = "also delete optimizer states: runs are evaluated and started from, but not resumed"
    option("--optimizer", action="store_true", help=text)
    option("--dry-run", action="store_true", help="print what would be deleted; delete nothing")
    is_list = {*commands.choices, "-h", "--help"}.isdisjoint(sys.argv[1:2])
    arguments = parser.parse_args([*["list"] * is_list, *sys.argv[1:]])
    with parser.refusing(ValueError, OSError):
        runs = list(find_below(arguments.dirs))
        if not runs:
            raise ValueError(f"no run (config.json) below {', '.join(map(str, arguments.dirs))}")
        if arguments.command == "list":
            lines = [describe(run) for run in runs]
            print_tables([TextTable(title="", lines=lines, names=("run", "config", "rotary"))])
        else:
            options = arguments.keep, arguments.optimizer, arguments.dry_run
            freed = sum(prune(run, *options) for run in runs)
            verb = "would delete" if arguments.dry_run else "deleted"
            print(f"{verb} {freed / 1e6:,.1f} MB of checkpoints of {counted(len(runs), 'runs')}")
    return 0


def find_below(folders: Sequence[Path]) -> Iterator[RunDirectory]:
    """Yield the runs at or below folders, in order of their names; links are not followed."""
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        # An exported model has a config.json too.
        if (folder / "config.json").is_file() and (folder / "checkpoints").is_dir():
            yield RunDirectory(folder)
            continue
        children = (path for path in sorted(folder.iterdir()) if not path.is_symlink())
        yield from find_below([path for path in children if path.is_dir()])


def describe(run: RunDirectory) -> dict[str, str]:
    """Return the cells of a run, by column; a run that cannot be read says why."""
    cells = {"run": str(run.path)}
    try:
        config, steps, size = run.config, run.steps(), _size(run.path)
        check_newest_config(run)
        losses = [row["loss"] for row in run.read_metrics()]
        if metrics_damage(run):
            losses = ["damaged"]
    except (OSError, ValueError) as error:  # training removes files meanwhile
        return cells | {"config": str(error)}
    last = losses[-1] if losses else "-"
    newest, end = steps[-1] if steps else 0, split(config)[-1].end
    return cells | {
        "config": config.name,
        "rotary": rotary.label(run.config_at(newest).model.rotary),
        "seed": str(config.seed),
        "steps": f"{newest:,}" if newest == end else f"{newest:,} of {end:,}",
        "loss": "not finite" if last is None else last if isinstance(last, str) else f"{last:.3f}",
        "MB": f"{size / 1e6:,.1f}",
    }


def prune(run: RunDirectory, keep: int, optimizer: bool = False, is_dry_run: bool = False) -> int:
    """Delete all but the newest checkpoints of a run that no process trains; return the bytes.

    Members of a sweep go on from the newest step that all of a group have, whichever members that
    are: a step stays if no later one is there in all the members that have it.

    Args:
      run: the run.
      keep: number of checkpoints to keep.
      optimizer: whether to delete the optimizer states of those that are kept.
      is_dry_run: whether to print the folders instead of deleting them.

    Raises:
      ValueError: if a process trains the run.
    """
    with try_lock(run.path / ".lock") as file:
        if file is None:
            raise ValueError(f"{run.path} is being trained; stop that process first")
        steps, members = run.steps(), _members_with(run)
        having = {step: {m.name for m in members if step in m.steps()} for step in steps}
        kept_steps = [
            step
            for number, step in enumerate(steps)
            if number >= len(steps) - keep
            or not any(having[step] <= having[later] for later in steps[number + 1 :])
        ]
        folders = [run.checkpoints_path / str(step) for step in steps if step not in kept_steps]
        if optimizer:
            states = [run.checkpoints_path / str(step) / "opt_state" for step in kept_steps]
            folders += filter(Path.exists, states)
        freed = sum(map(_size, folders))
        for folder in folders:
            print(f"would delete {folder}") if is_dry_run else remove(folder)
    return freed


def _members_with(run: RunDirectory) -> list[RunDirectory]:
    """Return the members of the sweep of `run`, or `run` alone."""
    folder = run.path.absolute().parent
    names = read_sweep(folder).members if (folder / "sweep.json").exists() else ()
    return [RunDirectory(folder / name) for name in names] if run.name in names else [run]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


if __name__ == "__main__":
    exit_with(main)
