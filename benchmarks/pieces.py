"""Sets of measurements in pieces: each runs alone, in a process of its own, and writes its file.

A piece is a module with `measure(setting)`, which yields figures, and notes of one line.
"""

import argparse
import importlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks import machine, record
from settings.commands import Parser
from settings.messages import nearest

RESULTS = machine.ROOT / "benchmarks" / "results"
# Of a dry run, which git does not keep.
DRY_RESULTS = machine.ROOT / "runs" / "benchmarks"
LIMIT = 540  # seconds of a piece, where it says nothing else


class Setting(NamedTuple):
    """What a piece is told.

    Attributes:
      rounds: alternations.
      scale: 1, or less for a dry run: what sizes and lengths, multiplied, are cut to.
      deadline: of `time.monotonic`; what would end after it is left out, and said to be.
      folder: where files of other pieces lie.
    """

    rounds: int
    scale: float
    deadline: float
    folder: Path

    @property
    def dry(self) -> bool:
        """Whether no figure means anything."""
        return self.scale < 1

    def has(self, seconds: float) -> bool:
        """Whether that much time is left."""
        return time.monotonic() + seconds < self.deadline


class Pieces(NamedTuple):
    """A command.

    Attributes:
      name: what to type, and the package of the pieces' modules.
      text: what it is for.
      pieces: what each measures, by name, in the order in which they run.
      environment: variables that a piece's process wants, where they are not set.
      accelerator: whether JAX is asked for its devices: a piece may want to set up the cores first.
      resumes: whether a piece whose file is there is left out.
      seconds: of each piece, after which it leaves out what it has not measured yet.
    """

    name: str
    text: str
    pieces: Mapping[str, str]
    environment: Mapping[str, Mapping[str, str]] = {}
    accelerator: bool = False
    resumes: bool = False
    seconds: Mapping[str, float] = {}


def main(command: Pieces, given: Sequence[str]) -> int:
    """Runs what `given`, the words behind the command's name, ask for; how many pieces failed."""
    parser, arguments = _parsed(command, given)
    if arguments.list:
        for name, text in command.pieces.items():
            print(f"{name:<12} {text}")
        return 0
    names = list(command.pieces) if arguments.only is None else arguments.only.split(",")
    for name in names:
        if name not in command.pieces:
            parser.error(f"unknown piece {name!r}; {nearest(name, command.pieces)}")
    out = arguments.out or (DRY_RESULTS if arguments.scale < 1 else RESULTS)
    if arguments.markdown:
        print(said(command, names, out), end="")
        return 0
    if arguments.into:
        made = put(said(command, names, out), arguments.into.read_text("utf-8"), command.name)
        if made is None:
            parser.error(f"{arguments.into} has no part for {command.name}; see --help")
        arguments.into.write_text(made, "utf-8")
        return 0
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out} cannot be written to: {error.strerror}")
    if arguments.here:
        return _measured(command, names[0], arguments, out)
    failed = [name for name in names if _apart(command, name, given, arguments)]
    where = out.relative_to(machine.ROOT) if out.is_relative_to(machine.ROOT) else out
    print(f"written under {where}; --into docs/performance.md puts it into that document")
    for name in failed:
        print(f"{name} failed: python -m benchmarks {command.name} --only {name}")
    return len(failed)


def _parsed(command: Pieces, given: Sequence[str]) -> tuple[Parser, argparse.Namespace]:
    listed = "\n".join(f"  {name:<12} {text}" for name, text in command.pieces.items())
    parser = Parser(
        prog=f"python -m benchmarks {command.name}",
        description=f"{command.text}\n\npieces:\n{listed}",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("--only", metavar="NAMES", help="pieces, with commas between them (all)")
    add("--list", action="store_true", help="say what the pieces are, and no more")
    add("--out", type=Path, metavar="DIR", help="where files go (benchmarks/results)")
    add("--rounds", type=_count, default=5, help="alternations (default 5)")
    add(
        "--markdown",
        action="store_true",
        help="print what was measured before, as tables for a document, and no more",
    )
    add(
        "--into",
        type=Path,
        metavar="FILE",
        help="write them into a document (docs/performance.md), between\n"
        f"<!-- python -m benchmarks {command.name} --> and <!-- end of {command.name} -->",
    )
    if command.resumes:
        add("--again", action="store_true", help="measure pieces anew whose file is there")
        add(
            "--scale",
            type=_share,
            default=1.0,
            help="0.01: a dry run anywhere, sizes and lengths cut to a hundredth;\n"
            "its figures say nothing, but every piece is seen to work",
        )
    # What `_apart` adds, and tests.
    add("--here", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(again=True, scale=1.0)
    if command.resumes:
        parser.set_defaults(again=False)
    return parser, parser.parse_args(given)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number from 1 to 1000")
    return int(text)


def _share(text: str) -> float:
    try:
        if 0 < (value := float(text)) <= 1:
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number above 0, up to 1")


def _apart(command: Pieces, name: str, given: Sequence[str], arguments: argparse.Namespace) -> int:
    """One piece in a process of its own: it gets all memory, and what ends it ends no other."""
    words = [sys.executable, "-m", "benchmarks", command.name, *given, "--only", name, "--here"]
    # On a GPU that is lent for minutes; elsewhere what takes long on a busy machine may.
    limit = command.seconds.get(name) if command.accelerator and arguments.scale == 1 else None
    environment = {**command.environment.get(name, {}), **os.environ}
    try:
        return subprocess.run(
            words, cwd=machine.ROOT, env=environment, timeout=limit and limit + 60
        ).returncode
    except subprocess.TimeoutExpired:
        return 1


def _measured(command: Pieces, name: str, arguments: argparse.Namespace, out: Path) -> int:
    """Measures one piece, and writes its file after every figure: what ends it loses none."""
    device = machine.device(accelerator=command.accelerator)
    folder = out / machine.folder_of(device)
    path = folder / f"{command.name}-{name}.json"
    if not arguments.again and path.exists() and record.Taken.read(path).complete:
        print(f"{name}: measured before; --again measures it anew")
        return 0
    start = time.monotonic()
    deadline = math.inf if arguments.scale < 1 else start + command.seconds.get(name, LIMIT)
    setting = Setting(arguments.rounds, arguments.scale, deadline, folder)
    scaled = f" --scale {arguments.scale:g}" if setting.dry else ""
    taken = record.Taken(
        command=f"{command.name} --only {name}{scaled}",
        date=machine.today(),
        commit=machine.commit(),
        device=device,
        versions=machine.versions(),
        load=round(os.getloadavg()[0], 1),
        dry_run=said_of_dry_runs(device) if setting.dry else "",
    )
    console = Console(highlight=False, width=160)
    console.print(f"{name}: {command.pieces[name]}")
    for each in found(command, name, setting):
        if isinstance(each, str):
            taken = record.dataclasses.replace(taken, notes=(*taken.notes, each))
        else:
            taken = record.dataclasses.replace(taken, results=(*taken.results, each))
        taken = record.dataclasses.replace(taken, seconds=round(time.monotonic() - start, 1))
        taken.write(path)
    record.dataclasses.replace(taken, complete=True).write(path)
    console.print(record.table(taken))
    for note in (*taken.notes, *[taken.dry_run] * bool(taken.dry_run)):
        console.print(f"  {note}", markup=False)
    return 0


def said_of_dry_runs(device: Mapping[str, object]) -> str:
    """What stands beside every figure of a dry run."""
    where = device.get("accelerator", "cpu")
    return f"dry run on {where}: no figure here says anything of a GPU"


def found(command: Pieces, name: str, setting: Setting) -> Iterator[record.Result | str]:
    """What a piece yields; imported only now: jax takes seconds."""
    module = importlib.import_module(f"benchmarks.{command.name}.{name.replace('-', '_')}")
    yield from module.measure(setting)


def taken_before(command: Pieces, names: Sequence[str], out: Path) -> list[list[record.Taken]]:
    """What files say, machine by machine, in the order of the pieces; what was not taken lacks."""
    machines = [
        [path for name in names if (path := folder / f"{command.name}-{name}.json").exists()]
        for folder in sorted(path for path in out.glob("*") if path.is_dir())
    ]
    return [[record.Taken.read(path) for path in paths] for paths in machines if paths]


def said(command: Pieces, names: Sequence[str], out: Path) -> str:
    """The same for a document."""
    machines = taken_before(command, names, out)
    return "\n".join(map(record.markdown, machines)) or "Not measured yet.\n"


def put(text: str, document: str, name: str) -> str | None:
    """`document` with `text` between the marks of a command; None where it lacks them."""
    start, end = f"<!-- python -m benchmarks {name} -->\n", f"<!-- end of {name} -->"
    if start not in document or end not in document:
        return None
    before, _, rest = document.partition(start)
    return before + start + "\n" + text + "\n" + end + rest.partition(end)[2]
