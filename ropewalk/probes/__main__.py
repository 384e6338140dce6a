"""Analyzes the attention of trained models: ropewalk probes RUN_OR_SWEEP_DIR ...

Captures the queries and keys of key-value recall before rotation, and runs the probes on them; for
a language model, those of repeated text: --task "lagcopy(text=natural,passage=32)". Prints the
findings: for each number, its range over runs and the heads that attain it. Writes arrays into each
run (probes/NAME.npz), and one page with the figures (probes/inside.html in the first directory).
Members that differ only in their seed share a column.

probes:
"""

import argparse
import collections
import dataclasses
import functools
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ropewalk import probes
from ropewalk.experiment.run import find_trained, newest_steps
from ropewalk.reporting.command import check_page
from ropewalk.utils.command_line import (
    Parser,
    at_least,
    exit_with,
    expression,
    tokens,
    typed_command,
)
from ropewalk.utils.messages import counted, nearest, printable, quoted
from ropewalk.utils.paths import as_path

if TYPE_CHECKING:
    from ropewalk.reporting.members import Member


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(
        description=str(__doc__) + (_list_probes() if {"-h", "--help"} & set(arguments) else ""),
    )
    add = parser.add_argument
    add("dirs", nargs="+", metavar="RUN_OR_SWEEP_DIR")
    text = "default: the probes marked *, which take seconds"
    add("--probes", metavar="A,B,...", help=text)
    text = "task of the documents; its answers are copies of single ids (default: kv)"
    add("--task", default="kv", type=expression, metavar="EXPR", help=text)
    text = "default: 256, or as many as fit one GiB"
    add("--documents", type=at_least(1), metavar="N", help=text)
    add("--length", type=tokens, metavar="TOKENS", help="default: the trained context")
    add("--step", type=int, metavar="N", help="checkpoint (default: the newest)")
    add("--heads", action="store_true", help="also print a line per run and head")
    add("--out", metavar="FILE.html", help="default: probes/inside.html in the first DIR")
    args = parser.parse_args(arguments)
    with parser.refusing(ValueError, OSError):
        out = _check(args)
        run_probes(args, out, typed_command(arguments))
    return 0


def _check(args: argparse.Namespace) -> Path:
    """Check the arguments without JAX, and return the path of the page.

    Raises:
      ValueError: for an argument that is wrong.
    """
    for run in find_trained(args.dirs):
        run.find_step(args.step)
    for name in args.probes.split(",") if args.probes is not None else ():
        if name not in probes.names():
            raise ValueError(f"no probe {quoted(name)}; {nearest(name, probes.names())}")
    return check_page(as_path(args.out or f"{args.dirs[0]}/probes/inside.html"))


def _list_probes() -> str:
    return "".join(
        f"  {name:18}{'*' if probe.by_default else ' '} {(probe.__doc__ or '').splitlines()[0]}\n"
        for name, probe in probes.all_probes().items()
    )


def run_probes(args: argparse.Namespace, out: Path, command: str) -> None:
    """Run the probes; write the arrays, and the page `out`, which shows `command`."""
    # Imported after parsing, because --help does not need JAX.
    from ropewalk.experiment import load
    from ropewalk.experiment.compiled import keep_programs
    from ropewalk.experiment.devices import check_platform
    from ropewalk.experiment.identity import run_id
    from ropewalk.probes import page
    from ropewalk.probes.subject import Subject
    from ropewalk.reporting import members as members_lib
    from ropewalk.utils.text_table import TextTable, print_tables, terminal_width

    keep_programs()
    check_platform()
    known = probes.all_probes()
    names = args.probes.split(",") if args.probes else [x for x in known if known[x].by_default]
    selected = [known[name] for name in dict.fromkeys(names)]
    console = Console(stderr=True, markup=False)
    notice = functools.partial(console.print, highlight=False, soft_wrap=True)
    members = select_steps(members_lib.read(find_trained(args.dirs, notice), notice), args.step)
    newest = newest_steps([run for m in members for run in m.runs if m.step is None], notice)
    results = {probe: collections.defaultdict(list) for probe in selected}
    for member in members:
        for run in member.runs:
            options = dict(task=args.task, length=args.length, documents=args.documents)
            loaded = load(run.path, newest.get(run) if member.step is None else member.step)
            subject = Subject(run=loaded, **options)
            identity = run_id(run, loaded.step)
            length = args.length or subject.run.config.data.context_length
            notice(f"{run.name}: {counted(len(selected), 'probes')} of rows of {length:,} tokens")
            for probe in selected:
                with console.status(f"{run.name}: {probe.name()}"):
                    result = probe.measure(subject)
                result.save(run.path, args.task, step=loaded.step, run_id=identity)
                results[probe][member.label].append(result)
                if args.heads and (lines := result.lines()):
                    title, names = f"{run.name}: {probe.title}", list(lines[0])[:2]
                    print_tables([TextTable(title=title, lines=lines, names=names)])
    for finding in page.list_findings(results):
        print(textwrap.fill(printable(finding), terminal_width(), subsequent_indent="  "))
    page.write(results, members, out, command)
    notice(f"page: {out}")


def select_steps(members: "list[Member]", step: int | None) -> "list[Member]":
    """Return the members with the checkpoint to load, `step` or that of the stage shown.

    A `step` selects the stages that it belongs to.
    """
    if step is None:
        return members
    return [
        dataclasses.replace(m, step=step, label=m.label.replace(f"@{m.step}", f"@{step}"))
        for m in members
        if m.step is None or m.config == m.runs[0].config_at(step)
    ]


if __name__ == "__main__":
    exit_with(main, "no page was written; arrays of finished runs are kept")
