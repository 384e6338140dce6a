"""Evaluate trained models: read run directories, write result rows, print tables.

usage: evaluate.py RUN_OR_SWEEP_DIR [RUN_OR_SWEEP_DIR ...] [options]

Directories are those of train.py and sweep.py.

options:
  -h, --help                  show this help
  --tasks TASK[,TASK...]      tasks, listed below, with parameters in brackets (default: config)
  --lengths TOKENS[,TOKENS...]
                              context lengths, 1024 or 1k (default: the config's, or the trained
                              length)
  --documents N               documents per task and length, up to 1,000,000, or all documents of a
                              text (default: the config's; perplexity: enough for 100,000 tokens;
                              --step1: enough for 262,144)
  --rotary EXPR[,EXPR...]     evaluate with these variants, listed below, with parameters in
                              brackets; omitted parameters are the trained variant's
  --step1 base=B[,B...]       loss of the first training rows under these bases (or variants,
                              written as for --rotary), before any update; --lengths sets the
                              context of the rows
  --format FORMAT             table, csv, json or markdown, on standard output (default: table; its
                              columns fit the terminal, and the others have all columns)
  --step N[,N...]             steps of checkpoints, or `stages`: the last of every stage of a run
                              (default: the newest)
  --check                     load the runs and make the documents, print what would be scored and
                              what would be skipped and why, and score nothing
  --own FILE.py               permit a file of your code, named by tasks of the runs' configs or
                              rows, to be executed; repeat for several files

several processes share the documents, as do all devices of a host. They find each other on TPU
slices, under SLURM and Open MPI; elsewhere start the same command N times, each with
  --coordinator HOST:PORT --num-processes N --process-id I

examples:
  ropewalk evaluate runs/demo            every member, with the tasks and lengths of its config
  ropewalk evaluate runs/demo/base=10,num_heads=4 --tasks kv,lines --lengths 128,256
  ropewalk evaluate runs/demo --tasks "lagcopy(text=natural),lagcopy(text=control),perplexity"
  ropewalk evaluate runs/demo --tasks "pg19(path='FOLDER',tokens=4096)"    quote other characters
  ropewalk evaluate runs/demo --tasks "path/to/mine.py:Echo(n=2)"          a task in your file
  ropewalk evaluate runs/demo --rotary trained,dynamic_yarn,dynamic_ntk_aware --lengths 256,1024
                                          a matrix: trained with x evaluated with
  ropewalk evaluate runs/demo --step1 base=1e3,1e4,1e5 --lengths 1024
                                          loss of the first rows before any update, by variant

The documents are counted before scoring starts; a terminal shows the remaining time. A task or
length that cannot be scored (no text, too short, too much memory) is skipped, with the reason; the
status is 0 if anything was scored. Ctrl-C stops and keeps the rows scored so far.

Rows are written to results.jsonl in each run directory and replace those of the same task, length,
step and rotary variant. To leave a run as it is, evaluate a copy (cp -r). Effective context [95%
CI]: the distance in tokens at which accuracy has first fallen half-way from its ceiling (accuracy
at short distances) to chance. "> 250": accuracy is significantly above half-way at every distance
tested. "undetermined between A and B" (or "undetermined" alone): neither a fall nor its absence is
significant. TOO_FEW_ANSWERS: the same, and more documents would tell. LOW_CEILING: the ceiling is
significantly below 0.95. NOT_LEARNED: it is not above 0.5. "dips": accuracy recovers after a fall,
so one number does not describe it. Worst bin: the least accuracy over an eighth of an octave of
distances, or a wider bin if there are fewer than 30 answers. Mean: accuracy, mean over all
distances.
"""

import dataclasses
import functools
import sys
import textwrap
import typing
from collections.abc import Sequence

from rich.console import Console

from ropewalk import evals
from ropewalk.evals.options import FORMATS, Options, check_variants, checkpoints, variant_names
from ropewalk.experiment.run import find_trained
from ropewalk.utils.command_line import (
    Parser,
    add_process_flags,
    exit_with,
    expression,
    expression_list,
    next_command,
    token_list,
    typed_command,
)
from ropewalk.utils.errors import UnreachableError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = _parser()
    args = parser.parse_args(arguments)
    notices: list[str] = []
    with parser.refusing(ValueError, UnreachableError):
        runs = find_trained(args.paths, notices.append)
        for run in runs:
            run.read_commands()  # refuses a damaged file, to which the command is added at the end
        steps = checkpoints(runs, args.step)
        options = Options(
            tasks=args.tasks,
            lengths=args.lengths,
            documents=args.documents,
            variants=args.rotary,
        )
        options = options.with_step1(args.step1) if args.step1 else options
        check_variants(options.variants, runs)
    # Imported late: JAX takes seconds and an accelerator, which help and errors do not need.
    from ropewalk.evals import runner
    from ropewalk.experiment import distributed
    from ropewalk.experiment.compiled import keep_programs
    from ropewalk.experiment.devices import PlatformError, check_platform
    from ropewalk.reporting.tables import print_results
    from ropewalk.reporting.trackers import log_results

    keep_programs()
    console = Console(stderr=True, markup=False)
    results: runner.Evaluated = []
    try:
        # A call from Python is alone, and may come after JAX was used.
        check_platform() if arguments is not None else distributed.initialize(args)
        console.quiet = not distributed.is_primary_host()
        runner.print_lines(console, notices)
        for runs_at_step, step in steps:
            plan = runner.make_plan(runs_at_step, dataclasses.replace(options, step=step))
            runner.print_lines(console, plan.describe())
            if not args.check:
                results += runner.score_plan(plan, console)
    except (ValueError, UnreachableError) as error:
        # Without devices, no process is the first.
        if not isinstance(error, PlatformError) and not distributed.is_primary_host():
            return 2
        parser.refuse(error)
    if args.check or not distributed.is_primary_host():
        return 0
    for run, *_ in results:
        run.record_command(typed_command(arguments))
    print_results(results, args.format)
    log_results(results, functools.partial(console.print, soft_wrap=True))
    line = next_command("report", *args.paths)
    console.print(f"rows: results.jsonl of each run. Next: {line}", soft_wrap=True)
    return 0


class _Parser(Parser):
    """Parser whose help is the docstring of this file, all variants and all tasks."""

    def format_help(self) -> str:
        """Return the text of `--help`."""
        variants = ", ".join(variant_names())
        wrapped = textwrap.fill(variants, 98, initial_indent="  ", subsequent_indent="  ")
        return f"{__doc__}\nvariants:\n{wrapped}\n\n{_list_tasks()}\n"


def _parser() -> Parser:
    parser = _Parser()
    parser.add_argument("paths", nargs="+", metavar="RUN_OR_SWEEP_DIR")
    parser.add_argument("--tasks", type=expression_list)
    parser.add_argument("--lengths", type=token_list)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--rotary", type=expression_list, default=["trained"])
    parser.add_argument("--step1", type=_step1_variants)
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument("--step")
    parser.add_argument("--check", action="store_true")
    add_process_flags(parser)
    return parser


def _step1_variants(text: str) -> str:
    """Return the argument of `--step1`; permit the files of code that it names."""
    expression(text.removeprefix("base="))
    return text


def _list_tasks() -> str:
    """List every task with its parameters and the first line of its module."""
    lines = ["tasks, with their parameters (the first or only value is the default):"]
    for name, task in sorted(evals.all_tasks().items()):
        kinds = typing.get_type_hints(task)
        parameters = []
        for field in dataclasses.fields(task):
            choices = [
                choice for choice in typing.get_args(kinds[field.name]) if isinstance(choice, str)
            ]
            default = "..." if field.default is dataclasses.MISSING else field.default
            values = dict.fromkeys([default, *choices])
            parameters.append(f"{field.name}={'|'.join(map(str, values))}")
        lines.append(f"  {name}({', '.join(parameters)})" if parameters else f"  {name}")
        lines.append(f"      {(sys.modules[task.__module__].__doc__ or '').splitlines()[0]}")
    return "\n".join(lines)


if __name__ == "__main__":
    exit_with(main, "finished tasks and lengths are kept in results.jsonl of each run")
