"""Asks trained models how far they see: run directories -> result rows and a table."""

import argparse
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import evals
from data.retrieval import RetrievalDocument
from data.tokenizer import Tokenizer
from evals import effective_context, rows
from evals.rows import Rows
from evals.score import AnswerScores, score
from experiment.checkpoint import restore_params
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory, find_runs
from model import rotary as rotary_lib
from model.config import ModelConfig
from model.positions import PositionTable, position_table
from model.rotary import Pattern, Rotary
from model.rotary.nope import Nope
from model.transformer import Params
from theory.predictions import predict

Results = list[tuple[RunDirectory, Rows]]

EPILOG = """\
examples:
  python evaluate.py runs/demo            every member, with the tasks and lengths of its config
  python evaluate.py runs/demo/base=10 --tasks kv,lines --lengths 128,256 --documents 256
  python evaluate.py runs/demo --rotary 'ntk_aware(base=1e4,factor=4)' --lengths 1024

Rows are written to results.jsonl in each run directory and replace those of the same task, length,
step and schedule. Effective context [95% CI]: the distance in tokens at which accuracy has fallen
half-way from its ceiling (accuracy at short distances) to chance. NOT_LEARNED: the ceiling itself
is too low to ask. "> 250": still right at the longest distance there is.
"""


class Member(NamedTuple):
    """A run to evaluate, its schedule already replaced where --rotary says so."""

    run: RunDirectory
    config: ExperimentConfig
    tokenizer: Tokenizer
    params: Params
    step: int


class Questions(NamedTuple):
    """What one task asks at one length."""

    task: str
    length: int
    chance: float
    documents: list[RetrievalDocument]


def evaluate(
    run_paths: Sequence[str | Path],
    tasks: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    documents: int | None = None,
    rotary: str | None = None,
    step: int | None = None,
    *,
    console: Console | None = None,
) -> Results:
    """Evaluates runs, members of the same shape side by side, and writes their result rows.

    Args:
      run_paths: run directories and sweep directories.
      tasks: files of `evals/`; None: the config's, less those that cannot be asked.
      lengths: context lengths in tokens; None: the config's.
      documents: documents a task and length; None: the config's.
      rotary: schedule to evaluate with, as an expression; None: the trained one.
      step: checkpoint; None: the newest.
      console: where progress and notices go; None: nowhere.

    Returns:
      Each run and its new rows.

    Raises:
      ValueError: for a directory that is no run, an unknown task, a length at which a task cannot
        be asked, a schedule or step that does not exist, a results file of another schema.
    """
    console = console or Console(quiet=True)
    schedule = rotary_lib.parse_pattern(rotary) if rotary else None
    for task in tasks or ():
        _check_task(task)
    if documents is not None and documents < 1:
        raise ValueError(f"documents must be at least 1, got {documents}")
    if any(length < 2 for length in lengths or ()):
        raise ValueError(f"lengths must be at least 2 tokens, got {min(lengths or ())}")

    # Once, however many of the paths lead to it.
    runs = list({run.path.resolve(): run for run in find_runs(run_paths)}.values())
    # Read before hours of work: a file that cannot be added to is an error now.
    old_rows = [_old_rows(run) for run in runs]
    members = [_member(run, schedule, step) for run in runs]
    groups = _by_key(members, _shared)
    asked = [_questions(group[0], tasks, lengths, documents, console) for group in groups]

    if not any(asked):
        raise ValueError("no task of the config can be asked here; name others with --tasks")

    new_rows: dict[Path, list[Rows]] = {run.path: [] for run in runs}
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        bar = progress.add_task(
            "", total=sum(len(each.documents) for questions in asked for each in questions)
        )
        for group, questions in zip(groups, asked, strict=True):
            params = jax.tree.map(lambda *leaves: np.stack(leaves), *(m.params for m in group))
            params = jax.device_put(params)
            for each in questions:
                progress.update(bar, description=f"{each.task} at {each.length}")
                scores = score(
                    _network(group[0].config.model),
                    params,
                    functools.partial(_tables, group),
                    each.documents,
                    each.length,
                    advance=functools.partial(progress.advance, bar),
                )
                for member, *fields in zip(group, *scores, strict=True):
                    new_rows[member.run.path].append(_rows(member, each, AnswerScores(*fields)))

    results = [(run, rows.concatenate(new_rows[run.path])) for run in runs]
    for (run, new), old in zip(results, old_rows, strict=True):
        rows.write(run.results_path, rows.replace(old, new))
    return results


def _old_rows(run: RunDirectory) -> Rows:
    return rows.read(run.results_path) if run.results_path.exists() else rows.columns([])


def _member(run: RunDirectory, schedule: Pattern | None, step: int | None) -> Member:
    params, step = restore_params(run, step)
    config = run.config
    if schedule:
        model = dataclasses.replace(config.model, rotary=schedule)
        config = dataclasses.replace(config, model=model)
    return Member(run, config, Tokenizer(run.tokenizer_path), params, step)


def _by_key(members: Iterable[Member], key: Callable[[Member], Hashable]) -> list[list[Member]]:
    """Members in groups of one key, both in order of appearance."""
    groups: dict[Hashable, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return list(groups.values())


def _network(config: ModelConfig) -> ModelConfig:
    """What the compiled program reads of a member: its sizes. The rest is in its table.

    Float32, because bfloat16 logits tie, and ties are answers won or lost by an id's number.
    """
    return dataclasses.replace(
        config, rotary=Nope(), window=None, compute_dtype="float32", remat="none"
    )


def _shared(member: Member):
    """Members that agree in this read the same documents in one program."""
    config = member.config
    return _network(config.model), config.data, config.evals, member.tokenizer


def _tables(group: Sequence[Member], row_lengths: Sequence[int]) -> PositionTable:
    """Tables of all members, stacked; one a row only where a dynamic schedule tells rows apart."""

    def stack(tables) -> PositionTable:
        return PositionTable(*map(np.stack, zip(*tables, strict=True)))

    def one(member: Member, row_length: int) -> PositionTable:
        config = member.config
        return position_table(config.model, config.data.context_length, row_length)

    layers = {rotary for member in group for rotary in _schedules(member)}
    if all(rotary.at_length(length) is rotary for rotary in layers for length in row_lengths):
        return stack(one(member, row_lengths[0]) for member in group)
    return stack(stack(one(member, length) for length in row_lengths) for member in group)


def _schedules(member: Member) -> tuple[Rotary, ...]:
    model = member.config.model
    return rotary_lib.over_layers(model.rotary, model.num_layers)


def _questions(member: Member, task_names, lengths, count, console) -> list[Questions]:
    config = member.config
    lengths = lengths or config.evals.lengths or (config.data.context_length,)
    questions = []
    for task, length in itertools.product(task_names or config.evals.tasks, lengths):
        module = _check_task(task)
        try:
            documents = module.documents(
                config, member.tokenizer, length, count or config.evals.documents
            )
        except ValueError as error:
            if task_names:
                raise
            console.print(f"left out: {error}", style="yellow", markup=False, highlight=False)
            continue
        chance = module.chance(member.tokenizer)
        questions.append(Questions(task, length, chance, documents))
    return questions


def _check_task(name: str):
    found = evals.tasks()
    if name not in found:
        raise ValueError(f"unknown task {name!r}; {rotary_lib.nearest(name, found)}")
    return found[name]


def _rows(member: Member, questions: Questions, scores: AnswerScores) -> Rows:
    """Columns of one member's answers."""
    answers = np.concatenate([document.answers for document in questions.documents])
    per_document = [len(document.answers) for document in questions.documents]
    rotary = member.config.model.rotary
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
        "document": np.repeat(np.arange(len(per_document)), per_document),
        "query": np.concatenate([np.arange(count) for count in per_document]),
        "num_tokens": answers[:, 1],
        **scores._asdict(),
    }
    return {name: columns[name] for name in rows.SCHEMA}


def context_table(results: Results) -> Table:
    """Effective context of every run, task and length, beside what theory says."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title="Effective context, tokens",
        title_justify="left",
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("run", overflow="fold")  # a long name takes two lines, not the numbers' room
    table.add_column("task", no_wrap=True)
    for name in ("length", "effective context\n[95% CI]", "ceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("theory\nlength", "quarter\nperiod", "full\nperiod"):
        table.add_column(name, justify="right", no_wrap=True)
    for run, task, chosen in _evaluations(results):
        if task == "perplexity":
            continue
        estimate = effective_context.estimate(chosen)
        evaluated = dataclasses.replace(
            run.config.model, rotary=rotary_lib.parse_pattern(str(chosen["rotary"][0]))
        )
        predicted = predict(evaluated.rotary_table(run.config.data.context_length).inv_freq)
        table.add_row(
            run.name,
            task,
            str(estimate.length),
            str(estimate),
            f"{estimate.ceiling:.2f}",
            str(predicted.first_negative or "none"),
            f"{predicted.quarter_period:.0f}",
            f"{predicted.full_period:.0f}",
        )
    return table


def perplexity_table(results: Results) -> Table:
    """Mean nats a token of every run and length."""
    table = Table(box=box.SIMPLE_HEAD, title="Perplexity", title_justify="left")
    table.add_column("run")
    for name in ("length", "documents", "nats a token", "perplexity"):
        table.add_column(name, justify="right")
    for run, task, chosen in _evaluations(results):
        if task == "perplexity":
            nll = np.average(chosen["nll"], weights=chosen["num_tokens"])
            num_documents = chosen["document"].max() + 1
            cells = chosen["length"][0], num_documents, f"{nll:.4f}", f"{np.exp(nll):.2f}"
            table.add_row(run.name, *map(str, cells))
    return table


def _evaluations(results: Results) -> Iterator[tuple[RunDirectory, str, Rows]]:
    """The rows of each task, length and run; runs innermost, to be compared."""
    keys = {}
    for _, run_rows in results:
        tasks_lengths = zip(run_rows["task"].tolist(), run_rows["length"].tolist(), strict=True)
        keys |= dict.fromkeys(tasks_lengths)
    for task, length in keys:
        for run, run_rows in results:
            chosen = rows.select(run_rows, task=task, length=length)
            if len(chosen["task"]):
                yield run, task, chosen


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a comma list of numbers of tokens, like 256,512"
        ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="evaluate.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="+", metavar="RUN_OR_SWEEP_DIR", help="as train.py and sweep.py leave them"
    )
    parser.add_argument(
        "--tasks",
        type=lambda text: text.split(","),
        help=f"comma list of {', '.join(sorted(evals.tasks()))} (default: the config's)",
    )
    parser.add_argument(
        "--lengths",
        type=_integers,
        help="comma list of context lengths in tokens (default: the config's, or the trained one)",
    )
    parser.add_argument(
        "--documents", type=int, help="documents a task and length (default: the config's)"
    )
    parser.add_argument(
        "--rotary",
        metavar="EXPR",
        help=f"evaluate with this schedule instead; one of {', '.join(rotary_lib.schedules())}, "
        "with parameters in brackets",
    )
    parser.add_argument("--step", type=int, help="checkpoint (default: the newest)")
    args = parser.parse_args(arguments)

    console = Console(stderr=True)
    try:
        results = evaluate(
            args.paths,
            args.tasks,
            args.lengths,
            args.documents,
            args.rotary,
            args.step,
            console=console,
        )
    except ValueError as error:
        print(f"evaluate.py: error: {error}", file=sys.stderr)
        return 2
    out = Console(width=max(Console().width, 110))  # wider than a pipe's 80: rows stay lines
    for table in (context_table(results), perplexity_table(results)):
        if table.row_count:
            out.print(table)
    paths = " ".join(map(str, args.paths))
    out.print(f"rows: results.jsonl of each run; figures: python report.py {paths}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
