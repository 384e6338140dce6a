"""Results as tables for a terminal: one for each kind of task, and matrices of variants."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from rich import box
from rich.table import Table

from evals.estimate import summaries
from evals.rows import Rows
from experiment.config import TRAINED, ExperimentConfig
from experiment.run import RunDirectory
from reporting.labels import seeds_said
from reporting.measurements import Measurement, before_divergence, measurements

_CORNER = "trained as \\\nevaluated with"


Columns: TypeAlias = Callable[[Measurement], dict[str, str]]  # cells by head


class Evaluation(NamedTuple):
    """What one run measured."""

    run: RunDirectory
    measured: Measurement

    @property
    def name(self) -> str:
        """The run; with the step where that says something."""
        step = int(self.measured.rows["step"][0])
        told = self.run.config.stages or step != self.run.steps()[-1]
        return f"{self.run.name}@{step}" if told else self.run.name


def tables(results: Sequence[tuple[RunDirectory, ExperimentConfig, Rows]]) -> list[Table]:
    """All that results have to say, in tables no wider than a terminal."""
    by_key: dict[tuple[str, int], list[Evaluation]] = {}  # runs side by side, to be compared
    for run, config, rows in results:
        for each in measurements(before_divergence(run, rows), config):
            by_key.setdefault((each.task, each.length), []).append(Evaluation(run, each))
    made = []
    for kind, (title, columns) in _TABLES.items():
        alike = [found for found in by_key.values() if found[0].measured.kind == kind]
        compared = [found for found in alike if found[0].measured.compared]
        if len({each.measured.variant for found in compared for each in found}) > 1:
            made += map(matrix, compared)
            alike = [found for found in alike if not found[0].measured.compared]
        # Tasks of text have columns of their own.
        by_title: dict[str, list[Evaluation]] = {}
        for found in alike:
            by_title.setdefault(title.format(found[0].measured.task), []).extend(found)
        made += [_table(title, _lines(found, columns)) for title, found in by_title.items()]
    diverged = {run.name: f"{run.diverged_at:,}" for run, *_ in results if run.diverged_at}
    if diverged:
        lines = [{"run": name, "diverged at step": step} for name, step in diverged.items()]
        made.append(_table("Diverged", lines))
    for table in made:
        table.caption = f"{seeds_said([config for _, config, _ in results])}, one a run"
    return made


def _lines(found: Sequence[Evaluation], columns: Columns) -> list[dict[str, str]]:
    several = any(each.measured.variant != TRAINED for each in found)
    lines = []
    above = above_best([each.measured for each in found])
    for (name, measured), own in zip(((e.name, e.measured) for e in found), above, strict=True):
        # The title names a task of text.
        task = {} if measured.kind == "likelihood" else {"task": measured.task}
        variant = {"evaluated with": measured.variant} if several else {}
        common = {"run": name, **task, "length": str(measured.length), **variant}
        own = {head.replace(" [", "\n["): cell for head, cell in own.items()}
        lines.append(common | columns(measured) | own)
    return lines


def _table(title: str, lines: Sequence[dict[str, str]]) -> Table:
    look = {
        "title_justify": "left",
        "caption_justify": "left",
        "collapse_padding": True,
        "pad_edge": False,
    }
    table = Table(box=box.SIMPLE_HEAD, title=title, **look)
    heads = list(dict.fromkeys(head for line in lines for head in line))
    for head in heads:
        # Names go over two lines, and the numbers keep their room.
        named = head in ("run", "task", "evaluated with", _CORNER)
        whole = not named and _CORNER not in heads
        table.add_column(head, justify="left" if named else "right", overflow="fold", no_wrap=whole)
    for line in lines:
        table.add_row(*(line.get(head, "") for head in heads))
    return table


def _context(measured: Measurement) -> dict[str, str]:
    """Effective context beside what theory says."""
    return {
        "effective\ncontext [95% CI]": measured.text.replace(" [", "\n["),
        "worst bin": measured.estimate.worst_text.replace(" at ", "\nat "),
        "mean": measured.estimate.mean_text.replace(" [", "\n["),
        "ceiling": f"{measured.estimate.ceiling:.2f}",
        "theory\nlength": str(measured.theory.first_violation or "none"),
        "quarter\nperiod": f"{measured.theory.quarter_period:.0f}",
        "full\nperiod": f"{measured.theory.full_period:.0f}",
    }


def _score(measured: Measurement) -> dict[str, str]:
    """Share of right answers."""
    return {
        "answers": f"{len(measured.rows['task']):,}",
        "right": measured.text,
        "chance": f"{measured.rows['chance'][0]:.3g}",
    }


def _likelihood(measured: Measurement) -> dict[str, str]:
    """Of text, with heads of two lines."""
    return {head.replace(" ", "\n", 1): cell for head, cell in likelihoods(measured).items()}


def likelihoods(measured: Measurement) -> dict[str, str]:
    """By every measure that the rows of a task of text allow, its own last."""
    found = {"documents": f"{len(np.unique(measured.rows['document'])):,}"}
    for name, value in summaries.likelihoods(measured.rows).items():
        head, form = _LIKELIHOODS[name]
        found[head] = format(value, form)
    own = measured.own_columns.items()
    return found | {name.replace("_", " "): f"{value:.4g}" for name, value in own}


def above_best(found: Sequence[Measurement]) -> list[dict[str, str]]:
    """A cell for each of several measurements of the likelihood of text; else none.

    It is against the best of the same task, length and variant, and says whether two of them
    differ: paired by document the interval is far below that of either.
    """
    cells: list[dict[str, str]] = [{} for _ in found]
    alike: dict[tuple, list[int]] = {}
    for number, each in enumerate(found):
        if each.kind == "likelihood":
            alike.setdefault((each.task, each.length, each.variant), []).append(number)
    for numbers in alike.values():
        differences = summaries.above_best([found[number].rows for number in numbers])
        for number, (mean, error, _) in zip(numbers, differences, strict=True):
            told = f"{mean:+.4f} ± {1.96 * error:.4f}" if error else "best"
            if len(numbers) > 1:
                cells[number][_ABOVE] = "other text" if np.isnan(mean) else told
    return cells


_ABOVE = "above the best [95% CI]"
_LIKELIHOODS = {
    "nll": ("nats per token", ".4f"),
    "perplexity": ("perplexity", ".2f"),
    "bits_per_byte": ("bits per byte", ".4f"),
    "word_perplexity": ("perplexity of words", ",.4g"),
}
_TABLES = {
    "retrieval": ("Effective context, tokens; 95% intervals over documents", _context),
    "score": ("Share of answers that are right", _score),
    "accuracy": ("Share of tokens that are right", _score),
    "likelihood": ("{}: likelihood of text, weighted by tokens", _likelihood),
}


def matrix(found: Sequence[Evaluation]) -> Table:
    """Trained (rows) x evaluated with (columns), for one task and length."""
    lines: dict[tuple[Path, str], dict[str, str]] = {}
    for each in found:
        head = each.measured.variant.replace("(", "\n(").replace("dynamic_", "dynamic_\n")
        line = lines.setdefault((each.run.path, each.name), {_CORNER: each.name})
        line[head] = each.measured.text.replace(" [", "\n[")
        if each.measured.kind == "retrieval":
            line[head] += "\n" + each.measured.estimate.accuracies
    first = found[0].measured
    title = f"{first.task} at {first.length}: {first.of_kind.title}"
    return _table(title, [*lines.values()])
