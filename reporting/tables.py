"""Tables of results for a terminal: one for each kind of task, and matrices of variants."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from evals.estimate import summaries
from evals.rows import Rows
from experiment.config import TRAINED, ExperimentConfig
from experiment.run import RunDirectory
from reporting.labels import describe_seeds, name_runs
from reporting.measurements import Measurement, drop_diverged, measurements
from reporting.page import NONE
from utils.text_table import TextTable

Columns: TypeAlias = Callable[[Measurement], dict[str, str]]  # cells by head
Results: TypeAlias = Sequence[tuple[RunDirectory, ExperimentConfig, Rows]]


class Evaluation(NamedTuple):
    """A measurement of one run; `name` has the fields in which the runs differ."""

    run: RunDirectory
    name: str
    measured: Measurement


def tables(results: Results) -> list[TextTable]:
    """Return all results of runs."""
    groups: dict[tuple[str, int], list[Evaluation]] = {}  # runs to be compared, side by side
    for item in _evaluations(results):
        groups.setdefault((item.measured.task, item.measured.length), []).append(item)
    result = []
    for kind, (title, columns, optional) in _TABLES.items():
        same_kind = [group for group in groups.values() if group[0].measured.kind == kind]
        matrices = [group for group in same_kind if _has_variants(group)]
        result += map(_matrix, matrices)
        # Each task of text has its own title and columns.
        by_title: dict[str, list[Evaluation]] = {}
        for group in (group for group in same_kind if group not in matrices):
            by_title.setdefault(title.format(group[0].measured.task), []).extend(group)
        result += [_table(title, group, columns, optional) for title, group in by_title.items()]
    diverged = {run.name: f"{run.diverged_at:,}" for run, *_ in results if run.diverged_at}
    if diverged:
        lines = [{"run": name, "diverged at step": step} for name, step in diverged.items()]
        result.append(TextTable(title="Diverged", lines=lines))
    if result:
        seeds = describe_seeds([config for _, config, _ in results])
        result[-1] = dataclasses.replace(result[-1], caption=f"{seeds}, one per run")
    return result


def _evaluations(results: Results) -> Iterator[Evaluation]:
    """Yield the measurements of all runs; equal names are followed by the step or the path."""
    names = name_runs([run for run, *_ in results])
    for name, (run, config, rows) in zip(names, results, strict=True):
        for measured in measurements(drop_diverged(run, rows), config):
            step = int(measured.rows["step"][0])
            with_step = run.config.stages or step != run.steps()[-1]
            yield Evaluation(run, f"{name}@{step}" if with_step else name, measured)


def _has_variants(group: Sequence[Evaluation]) -> bool:
    return len({item.measured.variant for item in group}) > 1


def _table(
    title: str, items: Sequence[Evaluation], columns: Columns, optional: Sequence[str]
) -> TextTable:
    """Return a line per measurement; a task, length or variant that all share is in the title."""
    shared = [
        {"task": m.task, "length": f"{m.length:,}", "evaluated with": m.variant}
        for m in (item.measured for item in items)
    ]
    differing = [head for head in shared[0] if len({line[head] for line in shared}) > 1]
    lines = []
    above = above_best([item.measured for item in items])
    for item, cells, cell in zip(items, shared, above, strict=True):
        line = _first_cells(item)
        line |= {head: cells[head] for head in differing}
        lines.append(line | columns(item.measured) | cell)
    if "task" not in differing and shared[0]["task"] not in title:
        title += f", {shared[0]['task']}"
    if "length" not in differing:
        title += f", context of {shared[0]['length']} tokens"
    if "evaluated with" not in differing and shared[0]["evaluated with"] != TRAINED:
        title += f", evaluated with {shared[0]['evaluated with']}"
    names = "run", "task", "evaluated with"
    return TextTable(title=title, lines=lines, names=names, optional=optional)


def _first_cells(item: Evaluation) -> dict[str, str]:
    steps = item.run.unfinished
    return {"run": item.name} | ({"trained for": steps} if steps else {})


def _context_cells(measured: Measurement) -> dict[str, str]:
    """Return effective context and predictions."""
    estimate = measured.estimate
    return {
        "effective context [95% CI]": measured.text,
        "D_H": str(measured.forecast or NONE),
        "theory length": str(measured.theory.first_violation or "none"),
        "worst bin": estimate.worst_text.partition(" [")[0]
        + " at "
        + estimate.worst_text.rpartition(" at ")[2],
        "mean accuracy": estimate.mean_text,
        "ceiling": f"{estimate.ceiling:.2f}",
        "quarter period": f"{measured.theory.quarter_period:,.0f}",
        "full period": f"{measured.theory.full_period:,.0f}",
    }


def _score_cells(measured: Measurement) -> dict[str, str]:
    """Return the share of correct answers."""
    return {
        "answers": f"{len(measured.rows['task']):,}",
        "correct": measured.text,
        "chance": f"{measured.rows['chance'][0]:.3g}",
    }


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
_TABLES = {  # title, columns, and heads in the order in which a narrow terminal omits them
    "retrieval": (
        "Effective context in tokens",
        _context_cells,
        ("full period", "quarter period", "ceiling", "mean accuracy"),
    ),
    "score": ("Share of correct answers", _score_cells, ()),
    "accuracy": ("Share of correct tokens", _score_cells, ()),
    "likelihood": (
        "{}: likelihood of text, weighted by tokens",
        likelihood_cells,
        ("documents", "word perplexity", "bits per byte"),
    ),
}


def _matrix(items: Sequence[Evaluation]) -> TextTable:
    """Return variants of training (rows) x evaluation (columns), for one task and length."""
    lines: dict[tuple[Path, str], dict[str, str]] = {}
    first = items[0].measured
    for item in items:
        measured = item.measured
        line = lines.setdefault((item.run.path, item.name), _first_cells(item))
        line[measured.variant] = measured.text
    title = f"{first.task} at {first.length:,}: {first.kind_info.title}, by variant of evaluation"
    return TextTable(title=title, lines=[*lines.values()])
