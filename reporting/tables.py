"""Results as tables for a terminal: one for each kind of task, and matrices of schedules."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from rich import box
from rich.table import Table

import evals
from evals import rows
from evals.estimate import effective_context, summaries
from evals.kinds import KINDS
from evals.rows import Rows
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory
from model import rotary as rotary_lib
from theory.predictions import predict

TRAINED = "trained"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The rows of one run, under one schedule, at one task and length.

    Attributes:
      run: the run evaluated.
      config: in force at the step evaluated.
      task: as an expression.
      length: context length, tokens.
      schedule: what was evaluated with, said relative to what the run was trained with: "trained",
        or an expression without the parameters that were taken over.
      rows: of this evaluation only.
    """

    run: RunDirectory
    config: ExperimentConfig
    task: str
    length: int
    schedule: str
    rows: Rows

    @property
    def name(self) -> str:
        """The run; with the step where that says something."""
        step = int(self.rows["step"][0])
        told = self.run.config.stages or step != self.run.steps()[-1]
        return f"{self.run.name}@{step}" if told else self.run.name

    @property
    def kind(self) -> str:
        """`Task.kind`."""
        return evals.parse(self.task).kind

    @property
    def value(self) -> str:
        """The one number of it, as text."""
        return KINDS[self.kind].text(self.rows)


def evaluations(
    results: Sequence[tuple[RunDirectory, ExperimentConfig, Rows]],
) -> Iterator[Evaluation]:
    """What was evaluated, task and length first, runs innermost, to be compared."""
    keys = {}
    for _, _, new in results:
        columns = (new[name].tolist() for name in ("task", "length"))
        keys |= dict.fromkeys(zip(*columns, strict=True))
    for task, length in keys:
        for run, config, new in results:
            asked = rows.select(new, task=task, length=length)
            for rotary in dict.fromkeys(asked["rotary"].tolist()):
                yield Evaluation(
                    run=run,
                    config=config,
                    task=task,
                    length=length,
                    schedule=relative(rotary, config),
                    rows=rows.select(asked, rotary=rotary),
                )


def relative(rotary: str, config: ExperimentConfig) -> str:
    """A schedule said relative to the one of training, so that members of a sweep share names."""
    trained = config.model.rotary
    schedule = rotary_lib.parse_pattern(rotary)
    if schedule == trained:
        return TRAINED
    given = rotary_lib.inherited(trained, config.data.context_length)
    return rotary_lib.expression(schedule, given)


def tables(results: Sequence[tuple[RunDirectory, ExperimentConfig, Rows]]) -> list[Table]:
    """All that results have to say, in tables no wider than a terminal."""
    found = list(evaluations(results))
    alone = [each for each in found if not evals.parse(each.task).compared]
    found = [each for each in found if evals.parse(each.task).compared]
    made = [likelihood_table(alike) for alike in _by_task(alone)]
    for kind, make in (
        ("retrieval", context_table),
        ("score", score_table),
        ("accuracy", score_table),
        ("likelihood", likelihood_table),
    ):
        chosen = [evaluation for evaluation in found if evaluation.kind == kind]
        if chosen and len({evaluation.schedule for evaluation in chosen}) > 1:
            keys = dict.fromkeys((each.task, each.length) for each in chosen)
            made += [
                matrix([each for each in chosen if (each.task, each.length) == key]) for key in keys
            ]
        elif chosen and kind == "likelihood":  # each has columns of its own
            made += map(make, _by_task(chosen))
        elif chosen:
            made.append(make(chosen))
    return made


def _by_task(found: Sequence[Evaluation]) -> list[list[Evaluation]]:
    by_task: dict[str, list[Evaluation]] = {}
    for each in found:
        by_task.setdefault(each.task, []).append(each)
    return list(by_task.values())


def _table(title: str, **options) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        collapse_padding=True,
        pad_edge=False,
        **options,
    )


def context_table(found: Sequence[Evaluation]) -> Table:
    """Effective context of every run, task and length, beside what theory says."""
    table = _table("Effective context, tokens")
    table.add_column("run", overflow="fold")  # a long name takes two lines, not the numbers' room
    table.add_column("task", overflow="fold")
    for name in ("length", "effective context\n[95% CI]", "ceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("theory\nlength", "quarter\nperiod", "full\nperiod"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        estimate = effective_context.estimate(each.rows)
        schedule = rotary_lib.parse_pattern(str(each.rows["rotary"][0]))
        evaluated = dataclasses.replace(each.config.model, rotary=schedule)
        frequencies = evaluated.rotary_table(each.config.data.context_length, each.length)
        predicted = predict(frequencies.inv_freq)
        table.add_row(
            each.name,
            each.task,
            str(each.length),
            str(estimate),
            f"{estimate.ceiling:.2f}",
            str(predicted.first_violation or "none"),
            f"{predicted.quarter_period:.0f}",
            f"{predicted.full_period:.0f}",
        )
    return table


def score_table(found: Sequence[Evaluation]) -> Table:
    """Share of right answers of every run, task and length."""
    table = _table("Share of answers that are right")
    table.add_column("run", overflow="fold")
    table.add_column("task", overflow="fold")
    for name in ("length", "answers", "right", "chance"):
        table.add_column(name, justify="right")
    for each in found:
        cells = str(each.length), f"{len(each.rows['task']):,}", each.value
        table.add_row(each.name, each.task, *cells, f"{each.rows['chance'][0]:.3g}")
    return table


def likelihood_table(found: Sequence[Evaluation]) -> Table:
    """Likelihood of text of every run and length on one task, by every measure its rows allow."""
    task = evals.parse(found[0].task)
    trained = {
        (each.run.path, each.name, each.length): each.rows
        for each in found
        if each.schedule == TRAINED
    }
    own = [
        task.columns(each.rows, trained.get((each.run.path, each.name, each.length)))
        for each in found
    ]
    names = dict.fromkeys(name for columns in own for name in columns)
    variants = any(each.schedule != TRAINED for each in found)
    table = _table(f"{task.expression}: likelihood of text, weighted by tokens")
    table.add_column("run", overflow="fold")
    if variants:
        table.add_column("evaluated with", overflow="fold")
    heads = ("length", "documents", "nats per\ntoken", "perplexity", "bits per\nbyte", "of words")
    for name in (*heads, *(name.replace("_", "\n", 1).replace("_", " ") for name in names)):
        table.add_column(name, justify="right")
    for each, columns in zip(found, own, strict=True):
        chosen = each.rows
        num_documents = str(len(np.unique(chosen["document"])))
        nats, perplexity = summaries.mean_nll(chosen), summaries.perplexity(chosen)
        bits = f"{summaries.bits_per_byte(chosen):.4f}" if chosen["num_bytes"].any() else ""
        words = f"{summaries.word_perplexity(chosen):.4g}" if chosen["num_words"].any() else ""
        cells = num_documents, f"{nats:.4f}", f"{perplexity:.2f}", bits, words
        more = (f"{columns[name]:.4g}" if name in columns else "" for name in names)
        evaluated = [each.schedule] if variants else []
        table.add_row(each.name, *evaluated, str(each.length), *cells, *more)
    return table


def matrix(found: Sequence[Evaluation]) -> Table:
    """Trained (rows) x evaluated with (columns), for one task and length."""
    first = found[0]
    table = _table(f"{first.task} at {first.length}: {KINDS[first.kind].title}")
    longest = max(len(each.name) for each in found)
    table.add_column("trained as \\\nevaluated with", overflow="fold", min_width=min(longest, 24))
    schedules = list(dict.fromkeys(each.schedule for each in found))
    for schedule in schedules:
        header = schedule.replace("(", "\n(").replace("dynamic_", "dynamic_\n")
        table.add_column(header, justify="right", overflow="fold")
    cells = {(each.run.path, each.name, each.schedule): each.value for each in found}
    for path, name in dict.fromkeys((each.run.path, each.name) for each in found):
        values = (cells.get((path, name, schedule), "") for schedule in schedules)
        table.add_row(name, *(value.replace(" [", "\n[") for value in values))
    return table
