"""Asks trained models how far they see: run directories -> result rows and tables.

usage: evaluate.py RUN_OR_SWEEP_DIR [RUN_OR_SWEEP_DIR ...] [options]

Directories are as train.py and sweep.py leave them.

options:
  -h, --help                  show this
  --tasks TASK[,TASK...]      those below, with parameters in brackets (default: the config's)
  --lengths TOKENS[,TOKENS...]
                              context lengths, 1024 or 1k (default: the config's, or what it was
                              trained at)
  --documents N               for each task and length, up to 1,000,000 (default: the config's; of
                              perplexity, what 100,000 tokens take, of --step1, what 262,144 take);
                              of text, as many as there are
  --rotary EXPR[,EXPR...]     evaluate with these variants, below, with parameters in brackets;
                              those left out are the trained variant's
  --step1 base=B[,B...]       loss of the first training rows under these bases (or variants,
                              written as for --rotary), before any update; with --lengths, of rows
                              of that context
  --precision OCTAVES         ask on, near where accuracy falls, until every interval is this
                              narrow: 0.25 is an upper end 19% above the lower (default:
                              --documents, and no more)
  --step N[,N...]             checkpoints, or `stages`: the last of every stage of a run (default:
                              the newest)
  --own FILE.py               a file of your code that tasks of the runs' configs or rows name, and
                              that may be executed; repeat for several
  --out DIR                   keep the rows in DIR, beside copies of what a report reads, and leave
                              the runs as they are; of several paths, in DIR/NAME each

examples:
  python evaluate.py runs/demo            every member, with the tasks and lengths of its config
  python evaluate.py runs/demo/base=10 --tasks kv,lines --lengths 128,256 --documents 256
  python evaluate.py runs/demo --tasks "lagcopy(text=natural),lagcopy(text=control),perplexity"
  python evaluate.py runs/demo --tasks "pg19(path='FOLDER',tokens=4096)"    quote what is no word
  python evaluate.py runs/demo --tasks "path/to/mine.py:Echo(n=2)"          a task of your own
  python evaluate.py runs/demo --rotary trained,dynamic_yarn,dynamic_ntk_aware --lengths 256,1024
                                          a matrix: trained with x evaluated with
  python evaluate.py runs/demo --step1 base=1e3,1e4,1e5 --lengths 1024
                                          loss of the first rows before any update, by variant

The number of documents, the estimated time and the memory are printed before anything is scored
(Ctrl-C stops; what is scored already is kept); what does not fit the memory is rejected.

Rows are written to results.jsonl in each run directory (or under --out) and replace those of the
same task, length, step and rotary variant. Effective context [95% CI]: the distance in tokens at
which accuracy has first fallen half-way from its ceiling (accuracy at short distances) to chance.
NOT_LEARNED: the ceiling itself is too low to ask. "> 250": surely below half-way at no distance
asked. "dips": accuracy comes back after it fell, so that one number does not describe it. Worst
bin: the least accuracy over an eighth of an octave of distances, or wider where it has fewer than
30 answers. Mean: accuracy, mean over all distances.
"""

import dataclasses
import shlex
import sys
import textwrap
import typing
from collections.abc import Sequence

from rich.console import Console

import evals
from evals.options import Options
from experiment.run import find_runs
from model import rotary as rotary_lib
from settings.commands import Parser, expression, expression_list, token_list
from settings.places import UnreachableError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        find_runs(args.paths)
        options = Options(
            tasks=args.tasks,
            lengths=args.lengths,
            documents=args.documents,
            variants=args.rotary,
            precision=args.precision,
        )
        options = options.with_step1(args.step1) if args.step1 else options
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    # Help, and a slip of the hand, do not need it: it takes seconds, and an accelerator.
    from evals import runner
    from evals.copies import Copies
    from experiment.compiled import keep_programs
    from reporting.tables import tables

    keep_programs()
    console = Console(stderr=True)
    results: runner.Evaluated = []
    try:
        copies = Copies(args.paths, args.out) if args.out else None
        for paths, step in runner.checkpoints(args.paths, args.step):
            at_step = dataclasses.replace(options, step=step)
            results += runner.evaluate(paths, at_step, console=console, copies=copies)
    except (ValueError, UnreachableError) as error:
        parser.refuse(error)
    except KeyboardInterrupt:
        return 130
    typed = sys.argv[1:] if arguments is None else arguments
    for run, *_ in results:
        target = copies.of(run) if copies else run
        target.record_command(shlex.join(["python", "evaluate.py", *typed]))
    out = Console(width=max(Console().width, 120))  # wider than a pipe's 80: rows stay lines
    for table in tables(results):
        out.print(table)
    paths = " ".join(map(str, copies.roots if copies else args.paths))
    out.print(f"rows: results.jsonl of each run; figures: python report.py {paths}", soft_wrap=True)
    return 0


class _Parser(Parser):
    """Its help is the docstring of this file, with all variants and tasks."""

    def format_help(self) -> str:
        """What `--help` prints."""
        variants = ", ".join(["trained", *rotary_lib.variants()])
        wrapped = textwrap.fill(variants, 98, initial_indent="  ", subsequent_indent="  ")
        return f"{__doc__}\nvariants:\n{wrapped}\n\n{_list_tasks()}\n"


def _parser() -> Parser:
    parser = _Parser(prog="evaluate.py")
    parser.add_argument("paths", nargs="+", metavar="RUN_OR_SWEEP_DIR")
    parser.add_argument("--tasks", type=expression_list)
    parser.add_argument("--lengths", type=token_list)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--rotary", type=expression_list, default=["trained"])
    parser.add_argument("--step1", type=_step1_variants)
    parser.add_argument("--precision", type=float)
    parser.add_argument("--step")
    parser.add_argument("--out")
    return parser


def _step1_variants(text: str) -> str:
    """Return what `--step1` compares as typed; permit the files of code that it names."""
    expression(text.removeprefix("base="))
    return text


def _list_tasks() -> str:
    """Every task with its parameters and what it is."""
    lines = ["tasks, with their parameters (the first or only value is the default):"]
    for name, task in sorted(evals.all_tasks().items()):
        kinds = typing.get_type_hints(task)
        parameters = []
        for field in dataclasses.fields(task):
            choices = [
                choice for choice in typing.get_args(kinds[field.name]) if isinstance(choice, str)
            ]
            values = dict.fromkeys([field.default, *choices])
            parameters.append(f"{field.name}={'|'.join(map(str, values))}")
        lines.append(f"  {name}({', '.join(parameters)})" if parameters else f"  {name}")
        lines.append(f"      {(sys.modules[task.__module__].__doc__ or '').splitlines()[0]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
