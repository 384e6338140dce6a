"""Results as tables for a terminal: one for each kind of task, and matrices of variants."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from rich import box
from rich.table import Table

import evals
from evals import rows
from evals.estimate import effective_context, summaries
from evals.kinds import KINDS
from evals.rows import TRAINED, Rows
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory
from model import rotary as rotary_lib
from theory.predictions import Predictions, predict

_CORNER = "trained as \\\nevaluated with"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The rows of one run, under one variant, at one task and length.

    Attributes:
      run: the run evaluated.
      config: in force at the step evaluated.
      task: as an expression.
      length: context length, tokens.
      variant: what was evaluated with, said relative to what the run was trained with: "trained",
        or an expression without the parameters that were taken over.
      rows: of this evaluation only.
    """

    run: RunDirectory
    config: ExperimentConfig
    task: str
    length: int
    variant: str
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
                    variant=relative(rotary, config),
                    rows=rows.select(asked, rotary=rotary),
                )


def relative(rotary: str, config: ExperimentConfig) -> str:
    """A variant said relative to the one of training, so that members of a sweep share names."""
    trained = config.model.rotary
    variant = rotary_lib.parse_pattern(rotary)
    if variant == trained:
        return TRAINED
    given = rotary_lib.inherited(trained, config.data.context_length)
    return rotary_lib.expression(variant, given)


def tables(results: Sequence[tuple[RunDirectory, ExperimentConfig, Rows]]) -> list[Table]:
    """All that results have to say, in tables no wider than a terminal."""
    found = list(evaluations(results))
    made = []
    for kind, (title, line) in _TABLES.items():
        chosen = [each for each in found if each.kind == kind]
        compared = [each for each in chosen if evals.parse(each.task).compared]
        if len({each.variant for each in compared}) > 1:
            keys = dict.fromkeys((each.task, each.length) for each in compared)
            made += [
                matrix([each for each in compared if (each.task, each.length) == key])
                for key in keys
            ]
            chosen = [each for each in chosen if not evals.parse(each.task).compared]
        # Tasks of text have columns of their own.
        names = dict.fromkeys(each.task if kind == "likelihood" else "" for each in chosen)
        for name in names:
            alike = [each for each in chosen if name in ("", each.task)]
            made.append(_table(title.format(name), [line(each, alike) for each in alike]))
    return made


def _table(title: str, lines: Sequence[dict[str, str]]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        collapse_padding=True,
        pad_edge=False,
    )
    heads = list(dict.fromkeys(head for line in lines for head in line))
    for head in heads:
        if head in ("run", "task", "evaluated with", _CORNER):
            table.add_column(head, overflow="fold")  # two lines, and the numbers keep their room
        else:
            matrix = _CORNER in heads
            table.add_column(head, justify="right", overflow="fold", no_wrap=not matrix)
    for line in lines:
        table.add_row(*(line.get(head, "") for head in heads))
    return table


def _context_line(each: Evaluation, found: Sequence[Evaluation]) -> dict[str, str]:
    """Effective context beside what theory says."""
    estimate = effective_context.estimate(each.rows)
    predicted = theory(each.config, str(each.rows["rotary"][0]), each.length)
    return {
        "run": each.name,
        "task": each.task,
        "length": str(each.length),
        "effective context\n[95% CI]": str(estimate),
        "ceiling": f"{estimate.ceiling:.2f}",
        "theory\nlength": str(predicted.first_violation or "none"),
        "quarter\nperiod": f"{predicted.quarter_period:.0f}",
        "full\nperiod": f"{predicted.full_period:.0f}",
    }


def theory(config: ExperimentConfig, rotary: str, length: int) -> Predictions:
    """Of the variant evaluated with, at that length: dynamic ones depend on it."""
    model = dataclasses.replace(config.model, rotary=rotary_lib.parse_pattern(rotary))
    return predict(model.rotary_table(config.data.context_length, length).inv_freq)


def _score_line(each: Evaluation, found: Sequence[Evaluation]) -> dict[str, str]:
    """Share of right answers."""
    return {
        "run": each.name,
        "task": each.task,
        "length": str(each.length),
        "answers": f"{len(each.rows['task']):,}",
        "right": each.value,
        "chance": f"{each.rows['chance'][0]:.3g}",
    }


def _likelihood_line(each: Evaluation, found: Sequence[Evaluation]) -> dict[str, str]:
    """Likelihood of text; `found` are all of that task, of which one is the trained variant's."""
    key = each.run.path, each.name, each.length, TRAINED
    trained = [o.rows for o in found if (o.run.path, o.name, o.length, o.variant) == key]
    line = {"run": each.name, "length": str(each.length)}
    if any(other.variant != TRAINED for other in found):
        line["evaluated with"] = each.variant
    measures = likelihoods(each.rows, trained[0] if trained else None)
    return line | {head.replace(" ", "\n", 1): cell for head, cell in measures.items()}


def likelihoods(rows: Rows, trained: Rows | None) -> dict[str, str]:
    """By every measure that the rows of a task of text allow, its own last."""
    found = {
        "documents": f"{len(np.unique(rows['document'])):,}",
        "nats per token": f"{summaries.mean_nll(rows):.4f}",
        "perplexity": f"{summaries.perplexity(rows):.2f}",
    }
    if rows["num_bytes"].any():
        found["bits per byte"] = f"{summaries.bits_per_byte(rows):.4f}"
    if rows["num_words"].any():
        found["perplexity of words"] = f"{summaries.word_perplexity(rows):,.4g}"
    own = evals.parse(str(rows["task"][0])).columns(rows, trained)
    return found | {name.replace("_", " "): f"{value:.4g}" for name, value in own.items()}


_TABLES = {
    "retrieval": ("Effective context, tokens", _context_line),
    "score": ("Share of answers that are right", _score_line),
    "accuracy": ("Share of tokens that are right", _score_line),
    "likelihood": ("{}: likelihood of text, weighted by tokens", _likelihood_line),
}


def matrix(found: Sequence[Evaluation]) -> Table:
    """Trained (rows) x evaluated with (columns), for one task and length."""
    first, lines = found[0], {}
    for each in found:
        head = each.variant.replace("(", "\n(").replace("dynamic_", "dynamic_\n")
        line = lines.setdefault((each.run.path, each.name), {_CORNER: each.name})
        line[head] = each.value.replace(" [", "\n[")
    return _table(f"{first.task} at {first.length}: {KINDS[first.kind].title}", [*lines.values()])
