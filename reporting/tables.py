"""Tables of results for a terminal: one for each kind of task, and matrices of variants."""

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
from reporting.labels import describe_seeds
from reporting.measurements import Measurement, drop_diverged, measurements
from reporting.page import NONE

_CORNER = "trained as \\\nevaluated with"


Columns: TypeAlias = Callable[[Measurement], dict[str, str]]  # cells by head


class Evaluation(NamedTuple):
    """A measurement of one run."""

    run: RunDirectory
    measured: Measurement

    @property
    def name(self) -> str:
        """Name of the run, with the step if it is not the last or the run has stages."""
        step = int(self.measured.rows["step"][0])
        with_step = self.run.config.stages or step != self.run.steps()[-1]
        return f"{self.run.name}@{step}" if with_step else self.run.name


def tables(results: Sequence[tuple[RunDirectory, ExperimentConfig, Rows]]) -> list[Table]:
    """Return all results of runs as tables no wider than a terminal."""
    groups: dict[tuple[str, int], list[Evaluation]] = {}  # runs to be compared, side by side
    for run, config, rows in results:
        for measured in measurements(drop_diverged(run, rows), config):
            key = measured.task, measured.length
            groups.setdefault(key, []).append(Evaluation(run, measured))
    result = []
    for kind, (title, columns) in _TABLES.items():
        same_kind = [group for group in groups.values() if group[0].measured.kind == kind]
        compared = [group for group in same_kind if group[0].measured.compared]
        if len({item.measured.variant for group in compared for item in group}) > 1:
            result += map(_matrix, compared)
            same_kind = [group for group in same_kind if not group[0].measured.compared]
        # Each task of text has its own title and columns.
        by_title: dict[str, list[Evaluation]] = {}
        for group in same_kind:
            by_title.setdefault(title.format(group[0].measured.task), []).extend(group)
        result += [_table(title, _lines(group, columns)) for title, group in by_title.items()]
    diverged = {run.name: f"{run.diverged_at:,}" for run, *_ in results if run.diverged_at}
    if diverged:
        lines = [{"run": name, "diverged at step": step} for name, step in diverged.items()]
        result.append(_table("Diverged", lines))
    for table in result:
        table.caption = f"{describe_seeds([config for _, config, _ in results])}, one per run"
    return result


def _lines(items: Sequence[Evaluation], columns: Columns) -> list[dict[str, str]]:
    several = any(item.measured.variant != TRAINED for item in items)
    lines = []
    above = above_best([item.measured for item in items])
    for item, cell in zip(items, above, strict=True):
        measured = item.measured
        # The title of a table of text names the task.
        task = {} if measured.kind == "likelihood" else {"task": measured.task}
        variant = {"evaluated with": measured.variant} if several else {}
        common = {"run": item.name, **task, "length": str(measured.length), **variant}
        cell = {head.replace(" [", "\n["): text for head, text in cell.items()}
        lines.append(common | columns(measured) | cell)
    return lines


def _table(title: str, lines: Sequence[dict[str, str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, collapse_padding=True, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    heads = list(dict.fromkeys(head for line in lines for head in line))
    for head in heads:
        # Names may wrap; numbers may not.
        is_name = head in ("run", "task", "evaluated with", _CORNER)
        no_wrap = not is_name and _CORNER not in heads
        justify = "left" if is_name else "right"
        table.add_column(head, justify=justify, overflow="fold", no_wrap=no_wrap)
    for line in lines:
        table.add_row(*(line.get(head, "") for head in heads))
    return table


def _context_cells(measured: Measurement) -> dict[str, str]:
    """Return effective context and predictions."""
    return {
        "effective\ncontext [95% CI]": measured.text.replace(" [", "\n["),
        "worst bin": measured.estimate.worst_text.replace(" at ", "\nat "),
        "mean": measured.estimate.mean_text.replace(" [", "\n["),
        "ceiling": f"{measured.estimate.ceiling:.2f}",
        "theory\nlength": str(measured.theory.first_violation or "none"),
        "quarter\nperiod": f"{measured.theory.quarter_period:.0f}",
        "full\nperiod": f"{measured.theory.full_period:.0f}",
    }


def _score_cells(measured: Measurement) -> dict[str, str]:
    """Return the share of correct answers."""
    return {
        "answers": f"{len(measured.rows['task']):,}",
        "correct": measured.text,
        "chance": f"{measured.rows['chance'][0]:.3g}",
    }


def _text_cells(measured: Measurement) -> dict[str, str]:
    """Return the likelihood of text, with heads of two lines."""
    return {head.replace(" ", "\n", 1): cell for head, cell in likelihood_cells(measured).items()}


def likelihood_cells(measured: Measurement) -> dict[str, str]:
    """Return all measures of the likelihood of text; those specific to the task are last."""
    cells = {"documents": f"{len(np.unique(measured.rows['document'])):,}"}
    for name, value in summaries.likelihoods(measured.rows).items():
        head, form = _LIKELIHOODS[name]
        cells[head] = format(value, form)
    columns = measured.task_columns.items()
    return cells | {name.replace("_", " "): f"{value:.4g}" for name, value in columns}


def format_share(rows: Rows | None, column: str = "first_token_correct") -> str:
    """Return the percentage of a column, with its 95% interval over documents."""
    if rows is None:
        return NONE
    mean, error, _ = summaries.share(rows, column=column)
    return f"{100 * mean:.1f} ± {196 * error:.1f}"


def above_best(results: Sequence[Measurement]) -> list[dict[str, str]]:
    """Return a cell for each of several measurements of the likelihood of text; else empty dicts.

    The cell is the difference from the best measurement of the same task, length and variant.
    Differences are paired by document, so their intervals are far narrower than those of the means.
    """
    cells: list[dict[str, str]] = [{} for _ in results]
    groups: dict[tuple, list[int]] = {}
    for index, measured in enumerate(results):
        if measured.kind == "likelihood":
            key = measured.task, measured.length, measured.variant
            groups.setdefault(key, []).append(index)
    for group in (group for group in groups.values() if len(group) > 1):
        differences = summaries.above_best([results[index].rows for index in group])
        for index, (mean, error, _) in zip(group, differences, strict=True):
            text = f"{mean:+.4f} ± {1.96 * error:.4f}" if error else "best"
            cells[index][_ABOVE] = "other text" if np.isnan(mean) else text
    return cells


_ABOVE = "above the best [95% CI]"
_LIKELIHOODS = {
    "nll": ("nats per token", ".4f"),
    "perplexity": ("perplexity", ".2f"),
    "bits_per_byte": ("bits per byte", ".4f"),
    "word_perplexity": ("word perplexity", ",.4g"),
}
_TABLES = {
    "retrieval": ("Effective context, tokens; 95% intervals over documents", _context_cells),
    "score": ("Share of correct answers", _score_cells),
    "accuracy": ("Share of correct tokens", _score_cells),
    "likelihood": ("{}: likelihood of text, weighted by tokens", _text_cells),
}


def _matrix(items: Sequence[Evaluation]) -> Table:
    """Return variants of training (rows) x evaluation (columns), for one task and length."""
    lines: dict[tuple[Path, str], dict[str, str]] = {}
    for item in items:
        measured = item.measured
        head = measured.variant.replace("(", "\n(").replace("dynamic_", "dynamic_\n")
        line = lines.setdefault((item.run.path, item.name), {_CORNER: item.name})
        line[head] = measured.text.replace(" [", "\n[")
        if measured.kind == "retrieval":
            line[head] += "\n" + measured.estimate.accuracies
    first = items[0].measured
    title = f"{first.task} at {first.length}: {first.kind_info.title}"
    return _table(title, [*lines.values()])
