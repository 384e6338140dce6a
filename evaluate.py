"""Asks trained models how far they see: run directories -> result rows and tables."""

import argparse
import dataclasses
import functools
import itertools
import shlex
import sys
import typing
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import evals
from data.tokenizer import Tokenizer
from evals import rows
from evals.estimate.sequential import next_round
from evals.rows import Rows
from evals.score import AnswerScores, Subject, check_fits, score
from evals.task import Document
from experiment import stages
from experiment.checkpoint import restore_params
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory, find_runs
from model import rotary as rotary_lib
from model.config import ModelConfig
from model.positions import PositionTable, position_table
from model.rotary import Pattern
from model.rotary.nope import Nope
from model.transformer import Params
from reporting.tables import tables
from settings.expressions import split_commas

Results = list[tuple[RunDirectory, ExperimentConfig, Rows]]

# However wide an interval stays, no more than this many times the documents first asked.
_MOST_ROUNDS = 16

EPILOG = """\
examples:
  python evaluate.py runs/demo            every member, with the tasks and lengths of its config
  python evaluate.py runs/demo/base=10 --tasks kv,lines --lengths 128,256 --documents 256
  python evaluate.py runs/demo --tasks "lagcopy(text=natural),lagcopy(text=control),perplexity"
  python evaluate.py runs/demo --tasks "pg19(path='FOLDER',tokens=4096)"    quote what is no word
  python evaluate.py runs/demo --rotary trained,dynamic_yarn,dynamic_ntk_aware --lengths 256,1024
                                          a matrix: trained with x evaluated with
  python evaluate.py runs/demo --step1 base=1e3,1e4,1e5 --lengths 1024
                                          loss of the first rows before any update, by schedule

Rows are written to results.jsonl in each run directory and replace those of the same task, length,
step and schedule. Effective context [95% CI]: the distance in tokens at which accuracy has fallen
half-way from its ceiling (accuracy at short distances) to chance. NOT_LEARNED: the ceiling itself
is too low to ask. "> 250": still right at the longest distance there is.
"""


class Member(NamedTuple):
    """A checkpoint to evaluate.

    Attributes:
      run: where it lies.
      config: in force at its step.
      schedules: to evaluate it with.
    """

    run: RunDirectory
    config: ExperimentConfig
    tokenizer: Tokenizer
    params: Params
    step: int
    schedules: tuple[Pattern, ...]


class Questions(NamedTuple):
    """What one task asks at one length."""

    task: str
    length: int
    chance: float
    documents: Sequence[Document]


class Group(NamedTuple):
    """Members that read the same documents in one program.

    Attributes:
      questions: asked of all of them.
      network: what they share.
      owners: every member with every schedule of its own.
      subjects: the same, as `evals.score` reads them.
    """

    members: list[Member]
    questions: list[Questions]
    network: ModelConfig
    owners: list[tuple[Member, Pattern]]
    subjects: list[Subject]


def evaluate(
    run_paths: Sequence[str | Path],
    tasks: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    documents: int | None = None,
    schedules: Sequence[str] = (),
    step: int | None = None,
    *,
    precision: float | None = None,
    console: Console | None = None,
) -> Results:
    """Evaluates runs, members of the same shape side by side, and writes their result rows.

    Args:
      run_paths: run directories and sweep directories.
      tasks: expressions, `needle(haystack=noise)`; None: the config's, less those that cannot be
        asked.
      lengths: context lengths in tokens; None: the config's.
      documents: documents a task and length; None: the config's.
      schedules: to evaluate with, as expressions; parameters left out are the trained schedule's,
        and "trained" is all of it. Empty: the trained one.
      step: checkpoint; None: the newest.
      precision: ask more documents, near where accuracy falls, until every 95% interval of an
        effective context is narrower than this many octaves, or 16 times the documents are asked.
      console: where progress and notices go; None: nowhere.

    Returns:
      Each run, its config at that step, and its new rows.

    Raises:
      ValueError: for a directory that is no run, an unknown task, a length at which a task cannot
        be asked or that does not fit the memory, a schedule or step that does not exist, a results
        file of another schema.
    """
    console = console or Console(quiet=True)
    for task in tasks or ():
        evals.parse(task)
    if precision is not None and precision <= 0:
        raise ValueError(f"precision must be a positive number of octaves, got {precision:g}")
    if documents is not None and documents < 1:
        raise ValueError(f"documents must be at least 1, got {documents}")
    if any(length < 2 for length in lengths or ()):
        raise ValueError(f"lengths must be at least 2 tokens, got {min(lengths or ())}")

    # Once, however many of the paths lead to it.
    runs = list({run.path.resolve(): run for run in find_runs(run_paths)}.values())
    # Read before hours of work: a file that cannot be added to is an error now.
    for run in runs:
        _old_rows(run)
    members = _members(runs, schedules or ["trained"], step, console)
    groups = [_group(group, console, tasks, lengths, documents) for group in _by_shape(members)]
    if not any(group.questions for group in groups):
        raise ValueError("no task of the config can be asked here; name others with --tasks")
    for group in groups:
        for each in sorted(group.questions, key=lambda each: -each.length):
            check_fits(group.network, group.subjects, len(each.documents), each.length)

    results = {run.path: rows.columns([]) for run in runs}
    with _progress(console) as progress:
        total = sum(
            len(each.documents) * len(group.subjects)
            for group in groups
            for each in group.questions
        )
        bar = progress.add_task("", total=total)
        advance = functools.partial(progress.advance, bar)
        for group in groups:
            for each in group.questions:
                progress.update(bar, description=f"{each.task} at {each.length}")
                new = _ask(group, each, advance)
                while precision and (more := _more(group, each, new, precision)):
                    total += len(more.documents) * len(group.subjects)
                    progress.update(bar, total=total)
                    new = list(map(_joined, new, _ask(group, more, advance)))
                # Written as soon as they are known: whoever stops here keeps what there is.
                for member in group.members:
                    answered = zip(new, group.owners, strict=True)
                    own = rows.concatenate([found for found, of in answered if of[0] is member])
                    path = member.run.results_path
                    rows.write(path, rows.replace(_old_rows(member.run), own))
                    results[member.run.path] = _joined(results[member.run.path], own)
    return [(member.run, member.config, results[member.run.path]) for member in members]


def _ask(group: Group, asked: Questions, advance: Callable[[int], None]) -> list[Rows]:
    """The rows of every subject of a group."""
    scores = score(group.network, group.subjects, asked.documents, asked.length, advance=advance)
    return [
        _rows(member, rotary, asked, AnswerScores(*fields))
        for (member, rotary), *fields in zip(group.owners, *scores, strict=True)
    ]


def _joined(first: Rows, second: Rows) -> Rows:
    return rows.concatenate([first, second])


def _more(
    group: Group, asked: Questions, found: Sequence[Rows], precision: float
) -> Questions | None:
    """What another round asks, if one is needed: near where accuracy falls."""
    task = evals.parse(asked.task)
    if task.kind != "retrieval":
        return None
    together = rows.concatenate(found)
    most = _MOST_ROUNDS * len({document.number for document in asked.documents})
    bands = next_round(together, octaves=precision, max_documents=most)
    member, documents = group.members[0], []
    first = int(together["document"].max()) + 1
    for band in bands:
        numbers = range(first, first + band.num_documents)
        first = numbers.stop
        documents += task.documents(
            member.config, member.tokenizer, asked.length, numbers, (band.low, band.high)
        )
    return asked._replace(documents=documents) if documents else None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _old_rows(run: RunDirectory) -> Rows:
    return rows.read(run.results_path) if run.results_path.exists() else rows.columns([])


def _members(
    runs: Sequence[RunDirectory], schedules: Sequence[str], step: int | None, console: Console
) -> list[Member]:
    """The checkpoints, each with the schedules it can take.

    Raises:
      ValueError: for a schedule that no run can take.
    """
    members, refusals = [], {text: [] for text in schedules}
    for run in runs:
        params, loaded = restore_params(run, step)
        config, chosen = run.config_at(loaded), {}
        for text in schedules:
            try:
                chosen[_schedule(text, config)] = None
            except ValueError as error:
                refusals[text].append((run, error))
        tokenizer = Tokenizer(run.tokenizer_path)
        members.append(Member(run, config, tokenizer, params, loaded, tuple(chosen)))
    for refused in refusals.values():
        if len(refused) == len(runs):
            raise refused[0][1]
        for run, error in refused:
            _notice(console, f"{run.name}: left out: {error}")
    return [member for member in members if member.schedules]


def _schedule(text: str, config: ExperimentConfig) -> Pattern:
    """The schedule of `text`, completed by the trained one; refused if heads do not fit it."""
    trained = config.model.rotary
    if text == "trained":
        return trained
    given = rotary_lib.inherited(trained, config.data.context_length)
    schedule = rotary_lib.parse_pattern(text, given, own_files=True)
    return dataclasses.replace(config.model, rotary=schedule).rotary


def _notice(console: Console, text: str) -> None:
    console.print(text, style="yellow", markup=False, highlight=False)


def _by_shape(members: Iterable[Member]) -> list[list[Member]]:
    """Members that can share a program, together; in order of appearance."""
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        config = member.config
        shared = _network(config.model), config.data, config.evals, member.tokenizer
        groups.setdefault(shared, []).append(member)
    return list(groups.values())


def _group(members: list[Member], console: Console, tasks, lengths, documents) -> Group:
    owners = [(member, rotary) for member in members for rotary in member.schedules]
    return Group(
        members=members,
        questions=_questions(members[0], tasks, lengths, documents, console),
        network=_network(members[0].config.model),
        owners=owners,
        subjects=[_subject(member, rotary) for member, rotary in owners],
    )


def _network(config: ModelConfig) -> ModelConfig:
    """What the compiled program reads of a member: its sizes. The rest is in its table.

    Float32, because bfloat16 logits tie, and ties are answers won or lost by an id's number.
    """
    return dataclasses.replace(
        config, rotary=Nope(), window=None, compute_dtype="float32", remat="none"
    )


def _subject(member: Member, rotary: Pattern) -> Subject:
    config = member.config
    model = dataclasses.replace(config.model, rotary=rotary)

    @functools.lru_cache
    def table(row_length: int) -> PositionTable:
        return position_table(model, config.data.context_length, row_length)

    return Subject(member.params, table)


def _questions(member: Member, task_names, lengths, count, console) -> list[Questions]:
    config = member.config
    lengths = lengths or config.evals.lengths or (config.data.context_length,)
    questions = []
    for name, length in itertools.product(task_names or config.evals.tasks, lengths):
        task = evals.parse(name)
        numbers = range(count or config.evals.documents)
        try:
            documents = task.documents(config, member.tokenizer, length, numbers)
            if not documents:
                raise ValueError(f"{name} at length {length} has nothing to ask here")
        except ValueError as error:
            if task_names:
                raise
            _notice(console, f"left out: {error}")
            continue
        chance = task.chance(member.tokenizer)
        questions.append(Questions(evals.expression(task), length, chance, documents))
    return questions


def _rows(member: Member, rotary: Pattern, questions: Questions, scores: AnswerScores) -> Rows:
    """Columns of one member's answers under one schedule."""
    documents = questions.documents
    answers = np.concatenate([document.answers for document in documents])
    counts = [len(document.answers) for document in documents]

    def each_answer(of_document: Callable[[Document], np.ndarray | int | None]) -> np.ndarray:
        values = [of_document(document) for document in documents]
        return np.concatenate(
            [np.full(n, 0 if x is None else x) for n, x in zip(counts, values, strict=True)]
        )

    constants = {
        "task": questions.task,
        "split": "validation",
        "run": member.run.name,
        "step": member.step,
        "seed": member.config.seed,
        "rotary": rotary_lib.expression(rotary),
        "base": float(getattr(rotary, "base", np.nan)),
        "trained_length": member.config.data.context_length,
        "length": questions.length,
        "chance": questions.chance,
    }
    columns = {name: np.full(len(answers), value) for name, value in constants.items()}
    columns |= {
        "distance": answers[:, 2],
        "document": each_answer(lambda document: document.number),
        "query": each_answer(lambda d: d.first_query + np.arange(len(d.answers))),
        "num_tokens": answers[:, 1],
        "num_bytes": each_answer(lambda document: document.num_bytes),
        "num_words": each_answer(lambda document: document.num_words),
        **scores._asdict(),
    }
    return {name: columns[name] for name in rows.SCHEMA}


def candidates(text: str) -> list[str]:
    """The schedules of `--step1 base=1e3,1e4,ntk_aware(factor=4)`, the trained one first."""
    schedules = ["trained"]
    for part in split_commas(text.removeprefix("base=")):
        try:
            schedules.append(f"rope(base={float(part):.17g})")
        except ValueError:
            schedules.append(part)
    return schedules


def _listed_tasks() -> str:
    """Every task with its parameters and what it is, for --help."""
    lines = ["\ntasks, with their parameters (the first or only value is the default):"]
    for name, task in sorted(evals.all_tasks().items()):
        kinds = typing.get_type_hints(task)
        parameters = []
        for field in dataclasses.fields(task):
            others = [each for each in typing.get_args(kinds[field.name]) if isinstance(each, str)]
            values = dict.fromkeys([field.default, *others])
            parameters.append(f"{field.name}={'|'.join(map(str, values))}")
        lines.append(f"  {name}({', '.join(parameters)})" if parameters else f"  {name}")
        lines.append(f"      {(sys.modules[task.__module__].__doc__ or '').splitlines()[0]}")
    return "\n".join(lines)


def _checkpoints(
    paths: Sequence[str], steps: str | None
) -> list[tuple[Sequence[str | Path], int | None]]:
    """Paths to evaluate at each step that --step names."""
    if steps == "stages":
        ends = [
            (run.path, stage.end) for run in find_runs(paths) for stage in stages.split(run.config)
        ]
        by_step = dict.fromkeys(end for _, end in ends)
        return [([path for path, of in ends if of == end], end) for end in by_step]
    try:
        return [(paths, int(step)) for step in steps.split(",")] if steps else [(paths, None)]
    except ValueError:
        raise ValueError(
            f"--step {steps} is neither numbers of checkpoints, like 500,900, nor `stages`"
        ) from None


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a comma list of numbers of tokens, like 256,512"
        ) from None


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line: the reason. `--help` teaches the rest."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _Parser(
        prog="evaluate.py",
        description=__doc__,
        epilog=EPILOG + _listed_tasks(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="+", metavar="RUN_OR_SWEEP_DIR", help="as train.py and sweep.py leave them"
    )
    parser.add_argument(
        "--tasks",
        type=split_commas,
        metavar="TASK[,TASK...]",
        help="those below, with parameters in brackets (default: the config's)",
    )
    parser.add_argument(
        "--lengths",
        type=_integers,
        metavar="TOKENS[,TOKENS...]",
        help="context lengths (default: the config's, or the trained one)",
    )
    parser.add_argument(
        "--documents",
        type=int,
        metavar="N",
        help="for each task and length (default: the config's); of text, as many as there are",
    )
    parser.add_argument(
        "--rotary",
        type=split_commas,
        default=[],
        metavar="EXPR[,EXPR...]",
        help=f"evaluate with these schedules: trained, {', '.join(rotary_lib.variants())}, "
        "with parameters in brackets; those left out are the trained schedule's",
    )
    parser.add_argument(
        "--step1",
        metavar="base=B[,B...]",
        help="loss of the first training rows under these bases (or schedules, written as for "
        "--rotary), before any update; with --lengths, of rows of that context",
    )
    parser.add_argument(
        "--precision",
        type=float,
        metavar="OCTAVES",
        help="ask on, near where accuracy falls, until every interval is this narrow: 0.1 is an "
        "upper end 7%% above the lower (default: --documents, and no more)",
    )
    parser.add_argument(
        "--step",
        metavar="N[,N...]",
        help="checkpoints, or `stages`: the last of every stage of a run (default: the newest)",
    )
    args = parser.parse_args(arguments)

    console = Console(stderr=True)
    try:
        if args.step1 and (args.tasks or args.rotary):
            raise ValueError("--step1 chooses its own task and schedules: no --tasks, no --rotary")
        if args.step1 and args.documents is None:
            # Paired by token, this many tell 0.001 nats apart.
            args.documents = -(-(2**18) // max(args.lengths or [2**10]))
        results = []
        for paths, step in _checkpoints(args.paths, args.step):
            results += evaluate(
                paths,
                ["step1"] if args.step1 else args.tasks,
                args.lengths,
                args.documents,
                candidates(args.step1) if args.step1 else args.rotary,
                step,
                precision=args.precision,
                console=console,
            )
    except ValueError as error:
        print(f"evaluate.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    given = sys.argv[1:] if arguments is None else arguments
    for run, *_ in results:
        run.record_command(shlex.join(["python", "evaluate.py", *given]))
    out = Console(width=max(Console().width, 110))  # wider than a pipe's 80: rows stay lines
    for table in tables(results):
        out.print(table)
    paths = " ".join(map(str, args.paths))
    out.print(f"rows: results.jsonl of each run; figures: python report.py {paths}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
