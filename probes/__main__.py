"""Looks into trained models: python -m probes RUN_OR_SWEEP_DIR [RUN_OR_SWEEP_DIR ...]

Asks every member the questions of key-value recall, captures its queries and keys before rotation,
and puts the probes' questions to them. Writes arrays into each run (probes/NAME.npz), and one page
with the figures (probes/inside.html in the first directory). Members that differ in their seed
only are shown as one.

probes:
"""

import argparse
import collections
import functools
import shlex
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from settings.commands import Parser
from settings.messages import nearest, quoted
from settings.places import place


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(
        prog="python -m probes",
        description=str(__doc__) + (_probes_said() if {"-h", "--help"} & set(arguments) else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dirs", nargs="+", metavar="RUN_OR_SWEEP_DIR")
    parser.add_argument(
        "--probes", metavar="A,B,...", help="which; default: those marked *, which take seconds"
    )
    parser.add_argument(
        "--documents", type=int, metavar="N", help="default 256, or as many as a GiB holds"
    )
    parser.add_argument("--length", type=int, metavar="TOKENS", help="default: as trained")
    parser.add_argument("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    parser.add_argument(
        "--out", metavar="FILE.html", help="default: probes/inside.html in the first DIR"
    )
    args = parser.parse_args(arguments)
    try:
        look(args, shlex.join(["python", "-m", "probes", *arguments]))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


def _probes_said() -> str:
    from probes import all_probes

    return "".join(
        f"  {name:18}{'*' if probe.by_default else ' '} {(probe.__doc__ or '').splitlines()[0]}\n"
        for name, probe in all_probes().items()
    )


def look(args: argparse.Namespace, command: str) -> None:
    """Puts the questions, writes arrays and the page."""
    # After parsing: --help needs none of JAX.
    from experiment import load
    from experiment.compiled import keep_programs
    from experiment.devices import check_platform
    from experiment.run import find_runs
    from probes import all_probes, page
    from probes.subject import Subject
    from reporting import members as members_lib

    keep_programs()
    check_platform()
    chosen = _chosen(args.probes, all_probes())
    console = Console(stderr=True)
    notice = functools.partial(console.print, markup=False, highlight=False, soft_wrap=True)
    members = members_lib.read(find_runs(args.dirs), notice)
    out = place(args.out) if args.out else place(args.dirs[0]) / "probes" / "inside.html"
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; write --out {out / 'inside.html'}")
    found = {probe: collections.defaultdict(list) for probe in chosen}
    for member in members:
        for run in member.runs:
            options = dict(length=args.length, documents=args.documents)
            subject = Subject(run=load(run.path, args.step), **options)
            for probe in chosen:
                with console.status(f"{run.name}: {probe.name()}"):
                    result = probe.look(subject)
                result.save(run.path, step=subject.run.step)
                found[probe][member.label].append(result)
                if lines := result.lines():
                    Console().print(_table(f"{run.name}: {probe.title}", lines))
    page.write(found, members, out, command)
    print(out)


def _chosen(names: str | None, known: dict[str, type]) -> list[type]:
    """The probes that a command line names.

    Raises:
      ValueError: for one that does not exist.
    """
    if names is None:
        return [probe for probe in known.values() if probe.by_default]
    for name in names.split(","):
        if name not in known:
            raise ValueError(f"no probe {quoted(name)}: {nearest(name, known)}")
    return [known[name] for name in names.split(",")]


def _table(title: str, lines: list[dict[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for column in lines[0]:
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(*line.values())
    return table


if __name__ == "__main__":
    sys.exit(main())
