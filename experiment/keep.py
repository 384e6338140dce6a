"""Keeps runs for evaluation: python -m experiment.keep RUN_OR_SWEEP_DIR [...] --out DIR

A kept run, DIR/NAME, has the parameters only, in bfloat16: a sixth of a checkpoint. It can be
loaded, evaluated, probed and started from (`start_from`), but not resumed. Its parameters are
rounded to 8 bits of precision and read as float32.
"""

import ropewalk.utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import functools
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ropewalk.experiment.run import RunDirectory, find_trained
from ropewalk.utils.command_line import Parser, exit_with
from ropewalk.utils.files import check_writable
from ropewalk.utils.paths import copy, local


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(prog="python -m experiment.keep", description=__doc__)
    parser.add_argument("dirs", nargs="+", type=Path, metavar="RUN_OR_SWEEP_DIR")
    parser.add_argument("--out", type=Path, metavar="DIR", required=True)
    parser.add_argument("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    args = parser.parse_args(arguments)
    try:
        keep(
            args.dirs,
            args.out,
            args.step,
            command=shlex.join(["python", "-m", "experiment.keep", *arguments]),
        )
    except (ValueError, OSError) as error:
        parser.refuse(error)
    return 0


def keep(dirs: Sequence[Path], out: Path, step: int | None, *, command: str) -> None:
    """Copy each run to `out`, and record the shell line.

    Raises:
      ValueError: if two have the same name, one is there already, or cannot be read.
    """
    out = local(out)
    sources = find_trained(dirs, functools.partial(print, file=sys.stderr))
    targets = [RunDirectory(out / source.name) for source in sources]
    for path, count in Counter(target.path for target in targets).items():
        if count > 1:
            raise ValueError(f"two runs are called {path.name}; give each another --out")
        if path.exists():
            raise ValueError(f"{path} is there already; delete it, or give another --out")
    steps = [source.find_step(step) for source in sources]
    for source in sources:
        source.read_commands()  # refuses a damaged file, which is copied at the end
    check_writable(out, "give another --out")
    from ropewalk.experiment.checkpoint import keep_params  # late: wrong arguments need no JAX

    for source, target, source_step in zip(sources, targets, steps, strict=True):
        keep_params(source, source_step, target)
        # With config.json, which makes it a run, last.
        for path in (source.tokenizer_path, source.path / "config.json"):
            if path.exists():  # a run on no text has no tokenizer
                copy(path, target.path / path.name)
        if source.commands_path.exists():
            copy(source.commands_path, target.commands_path)
        target.record_command(command)


if __name__ == "__main__":
    exit_with(main)
