"""Tables of results. The terminal, Markdown and the page have the same lines and columns."""

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate import summaries
from ropewalk.evals.estimate.effective_context import MEASURED
from ropewalk.experiment.config import TRAINED, ExperimentConfig
from ropewalk.experiment.run import RunDirectory
from ropewalk.reporting.columns import Cells, page_cells, terminal_cells
from ropewalk.reporting.labels import describe_seeds, name_runs
from ropewalk.reporting.measurements import Measurement, drop_diverged, measurements
from ropewalk.reporting.members import Member, describe_intervals, make_members, tasks
from ropewalk.reporting.page import NONE, Folded, Item, Line, Table, format_caption
from ropewalk.reporting.results import format_share, make_lines, write_csv
from ropewalk.reporting.task_view import all_views
from ropewalk.utils.messages import printable, rounded
from ropewalk.utils.text_table import TextTable, print_tables

Results: TypeAlias = Sequence[tuple[RunDirectory, ExperimentConfig, rows_lib.Rows]]


class Evaluation(NamedTuple):
    """A measurement, its first cells (a name), and the index of its member on the page."""

    first: Cells
    measured: Measurement
    index: int | None = None


# --- cells of one measurement --------------------------------------------------------------------


def _score_cells(measured: Measurement) -> Cells:
    """Return the share of correct answers, or of correct tokens."""
    column = "exact_match" if measured.kind == "score" else "first_token_correct"
    return {
        "answers": f"{len(measured.rows['task']):,}",
        "correct (%) [95% CI]": format_share(measured.rows, column=column),
        "chance": f"{measured.rows['chance'][0]:.3g}",
    }


def _likelihood_cells(measured: Measurement) -> Cells:
    """Return all measures of the likelihood of text; those specific to the task are last."""
    cells = {"documents": f"{len(np.unique(measured.rows['document'])):,}"}
    for name, value in {**measured.numbers, **measured.task_columns}.items():
        head, form = _LIKELIHOODS.get(name, (name.replace("_", " "), ".4g"))
        is_text = isinstance(value, str)
        cells[head] = value if is_text else NONE if math.isnan(value) else format(value, form)
    return cells


# --- tables by kind of task ----------------------------------------------------------------------

_LIKELIHOODS = {
    "nll": ("nats per token", ".4f"),
    "perplexity": ("perplexity", ".2f"),
    "bits_per_byte": ("bits per byte", ".4f"),
    "word_perplexity": ("word perplexity", ",.4g"),
}


class _Kind(NamedTuple):
    """Title of the table of a kind of task, cells of a line, and `TextTable.optional`."""

    title: str
    cells: Callable[[Measurement], Cells]
    optional: Sequence[str] = ()


_KINDS = {
    "retrieval": _Kind(
        "Effective context in tokens",
        lambda measured: terminal_cells(measured.theory, measured.estimate),
        ("full period", "quarter period", "ceiling", "mean accuracy"),
    ),
    "score": _Kind("Share of correct answers", _score_cells),
    "accuracy": _Kind("Share of correct tokens", _score_cells),
    "likelihood": _Kind(
        "{}: likelihood of text, weighted by tokens",
        _likelihood_cells,
        ("documents", "word perplexity", "bits per byte"),
    ),
}


def make_tables(
    items: Iterable[Evaluation], *, has_matrices: bool = False
) -> Iterator[tuple[str, str, list[Line]]]:
    """Yield kind, title and lines of a table per kind of task, or per task of text.

    Args:
      items: evaluations.
      has_matrices: whether tasks with several variants of evaluation have a table of variants.
    """
    groups = _alike(items)
    for name, kind in _KINDS.items():
        by_title: dict[str, list[Evaluation]] = {}
        for group in groups:
            first = group[0].measured
            if first.kind != name:
                continue
            if has_matrices and _has_variants(group):
                yield name, *_matrix(group)
            else:
                by_title.setdefault(kind.title.format(first.task), []).extend(group)
        for title, group in by_title.items():
            yield name, *_table(title, group, kind)


def _alike(items: Iterable[Evaluation]) -> list[list[Evaluation]]:
    """Group evaluations of one task and length, which are compared side by side."""
    groups: dict[tuple[str, int], list[Evaluation]] = {}
    for item in items:
        groups.setdefault((item.measured.task, item.measured.length), []).append(item)
    return list(groups.values())


def _has_variants(group: Sequence[Evaluation]) -> bool:
    return len({item.measured.variant for item in group}) > 1


def _table(title: str, items: Sequence[Evaluation], kind: _Kind) -> tuple[str, list[Line]]:
    """Return title and lines, one per measurement.

    A task, length or variant that all share is in the title.
    """
    shared = [
        {"task": m.task, "length": f"{m.length:,}", "evaluated with": m.variant}
        for m in (item.measured for item in items)
    ]
    differing = [head for head in shared[0] if len({line[head] for line in shared}) > 1]
    above = above_best([item.measured for item in items])
    lines: list[Line] = []
    for item, cells, cell in zip(items, shared, above, strict=True):
        line = item.first | {head: cells[head] for head in differing}
        lines.append((item.index, line | kind.cells(item.measured) | cell))
    if "task" not in differing and shared[0]["task"] not in title:
        title += f", {shared[0]['task']}"
    if "length" not in differing:
        title += f", context of {shared[0]['length']} tokens"
    if "evaluated with" not in differing and shared[0]["evaluated with"] != TRAINED:
        title += f", evaluated with {shared[0]['evaluated with']}"
    return title, lines


def _matrix(items: Sequence[Evaluation]) -> tuple[str, list[Line]]:
    """Return title and lines: variants of training (rows) x evaluation (columns).

    All items are of one task and length.
    """
    lines: dict[tuple, tuple[int | None, Cells]] = {}
    for item in items:
        _, line = lines.setdefault(tuple(item.first.items()), (item.index, dict(item.first)))
        line[item.measured.variant] = item.measured.text
    first = items[0].measured
    title = f"{first.task} at {first.length:,}: {first.kind_info.title}, by variant of evaluation"
    return title, list(lines.values())


def above_best(results: Sequence[Measurement]) -> list[Cells]:
    """Return a cell for each of several measurements of the likelihood of text; else empty dicts.

    The cell is the difference from the best measurement of the same task, length and variant.
    Differences are paired by document, so their intervals are far narrower than those of the means.
    """
    cells: list[Cells] = [{} for _ in results]
    groups: dict[tuple, list[int]] = {}
    for index, measured in enumerate(results):
        if measured.kind == "likelihood":
            key = measured.task, measured.length, measured.variant
            groups.setdefault(key, []).append(index)
    for group in (group for group in groups.values() if len(group) > 1):
        differences = summaries.above_best([results[index].rows for index in group])
        for index, difference in zip(group, differences, strict=True):
            mean, half = difference.mean, difference.half_width
            half_width = "[too few documents]" if np.isnan(half) else f"± {half:.4f}"
            text = f"{mean:+.4f} {half_width}" if mean or half > 0 else "best"
            if np.isnan(mean):
                text = "other text" if np.isfinite(results[index].value) else NONE
            cells[index]["above the best [95% CI]"] = text
    return cells


# --- the terminal --------------------------------------------------------------------------------


def print_results(results: Results, form: str) -> None:
    """Print results on standard output, in one of `evals.options.FORMATS`."""
    if form == "table":
        print_tables(tables(results))
    elif form == "markdown":
        print(printable("\n\n".join(table.markdown() for table in tables(results))))
    elif form == "csv":
        sys.stdout.write(printable(write_csv(_lines(results))))
    else:
        lines = [
            {name: _json_value(value) for name, value in line.items()} for line in _lines(results)
        ]
        print(json.dumps(lines, indent=1))


def _names(results: Results) -> list[str]:
    """Return the names of the runs, as of the stages that were evaluated."""
    runs = [run for run, *_ in results]
    steps = [max(rows["step"].tolist(), default=0) for *_, rows in results]
    return name_runs(runs, [run.config_at(step) for run, step in zip(runs, steps, strict=True)])


def _lines(results: Results) -> list[dict[str, Any]]:
    """Return a dict of the columns of results.csv for each run, task, length and variant."""
    names = _names(results)
    return [
        line | {"member": name}
        for name, (run, _, rows) in zip(names, results, strict=True)
        for member in make_members({run: rows})
        for line in make_lines(member)
    ]


def _json_value(value: Any) -> Any:
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else None if math.isnan(value) else str(value)


def tables(results: Results) -> list[TextTable]:
    """Return all results of runs."""
    names = "run", "task", "evaluated with"
    text_tables = [
        TextTable(
            title=title,
            lines=[cells for _, cells in lines],
            names=names,
            optional=_KINDS[kind].optional,
        )
        for kind, title, lines in make_tables(_evaluations(results), has_matrices=True)
    ]
    diverged = {run.name: f"{run.diverged_at:,}" for run, *_ in results if run.diverged_at}
    if diverged:
        lines = [{"run": name, "diverged at step": step} for name, step in diverged.items()]
        text_tables.append(TextTable(title="Diverged", lines=lines))
    if text_tables:
        seeds = describe_seeds([config for _, config, _ in results])
        text_tables[-1] = dataclasses.replace(text_tables[-1], caption=f"{seeds}, one per run")
    return text_tables


def _evaluations(results: Results) -> Iterator[Evaluation]:
    """Yield the measurements of all runs; equal names are followed by the step or the path."""
    names = _names(results)
    for name, (run, config, rows) in zip(names, results, strict=True):
        for measured in measurements(drop_diverged(run, rows), config):
            step = int(measured.rows["step"][0])
            with_step = run.config.stages or step != run.steps()[-1]
            first = {"run": f"{name}@{step}" if with_step else name}
            first |= {"trained for": run.unfinished} if run.unfinished else {}
            yield Evaluation(first, measured)


# --- the page ------------------------------------------------------------------------------------


def numbers(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the leading task's measurements beside its predictions, and all other numbers."""
    if tasks(members):
        table, more = number_tables(members)
        yield "Numbers", "", table
        summary = "More columns: dips, L85, ceiling, periods, other tasks"
        yield "Numbers", "", Folded(summary=summary, part=more)


def lengths_by_theory(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the predictions alone, if no retrieval task was evaluated."""
    if not tasks(members):
        table, _ = number_tables(members)
        summary = "Effective context: not evaluated"
        yield "Lengths by theory", "", Folded(summary=summary, part=table)


def number_tables(members: Sequence[Member]) -> tuple[Table, Table]:
    """Return the leading task's measurements beside its predictions, and all other numbers."""
    leading, *others = tasks(members) or [""]
    lines: list[Line] = []
    more: list[Line] = []
    for member in members:
        estimate = member.estimates.get(leading)
        cells, rest = page_cells(member.theory, estimate)
        if estimate is None:
            cells[next(iter(cells))] = member.diverged or "not evaluated"
        for name in others:
            other = member.estimates.get(name)
            rest[name] = f"{other}; {other.accuracies}" if other else NONE
        lines.append((member.index, {"member": member.label} | cells))
        more.append((member.index, {"member": member.label} | rest))
    estimates = [member.estimates[leading] for member in members if leading in member.estimates]
    documents = sorted({estimate.num_documents for estimate in estimates})
    caption = format_caption(
        "numbers",
        task=leading,
        over=describe_intervals(members),
        documents=" to ".join(map(str, dict.fromkeys(documents[:1] + documents[-1:]))),
    )
    return (
        Table.from_cells(lines, caption=caption),
        Table.from_cells(more, caption=format_caption("more_numbers")),
    )


def variants(members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
    """Yield a table of variants of training x evaluation, per task and length."""
    items = (
        Evaluation({"trained with": member.label}, measured, member.index)
        for member in members
        for measured in member.measurements
        if measured.compared
    )
    caption = format_caption("variants", over=describe_intervals(members))
    for group in _alike(items):
        if _has_variants(group):
            first = group[0].measured
            table = Table.from_cells(_matrix(group)[1], caption=caption)
            yield "Trained with, evaluated with", f"{first.task} at {first.length:,}", table


def others(members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
    """Yield the tables of all measurements that are not of retrieval."""
    items = (
        Evaluation({"member": member.label}, measured, member.index)
        for member in members
        for measured in member.trained.values()
        if measured.kind in _SECTIONS and measured.compared
    )
    for kind, title, lines in make_tables(items):
        caption = format_caption("scores" if kind == "score" else "texts")
        yield _SECTIONS[kind], title, Table.from_cells(lines, caption=caption)


_SECTIONS = {"score": "Whole-context tasks", "likelihood": "Likelihood of text"}


def task_tables(members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
    """Yield the tables that tasks declare."""
    for view in all_views().values():
        for section, name, caption, lines in view.tables(members):
            yield section, name, Table.from_cells(lines, caption=caption)


def seeds(members: Sequence[Member]) -> Iterator[tuple[str, str, Table]]:
    """Yield the mean over seeds with its t interval, by measure, if a member has several seeds."""
    if all(len(member.seeds) < 2 for member in members):
        return
    task, text = (next(iter(tasks(members, kind)), "") for kind in ("retrieval", "likelihood"))
    lines: list[Line] = []
    for member in members:
        cells = {"member": member.label}
        if estimate := member.estimates.get(task):
            beyond = [seed for seed in estimate.seeds if seed.is_beyond]
            l50 = [
                seed.l50 for seed in estimate.seeds if seed.is_beyond or seed.verdict == MEASURED
            ]
            head, count = f"{task}: L50 (tokens)", f"of {len(estimate.seeds)}"
            cells[head] = _over_seeds(l50, ratios=True) if len(l50) == len(estimate.seeds) else NONE
            if beyond:
                cells[head] = f"> {max(l50):.0f} in {len(beyond)} {count}"
            elif cells[head] == NONE:
                cells[head] = f"none in {len(estimate.seeds) - len(l50)} {count}"
            for name in ("worst", "mean"):
                values = [getattr(seed, f"{name}_accuracy") for seed in estimate.seeds]
                cells[f"{task}: {name} accuracy"] = _over_seeds(values, shares=True)
        if member.losses:
            ends = [nats[-max(1, len(nats) // 10) :].mean() for _, nats in member.losses]
            cells["training loss (nats)"] = _over_seeds(ends)
        if measured := member.nearest(text):
            numbers = np.unique(measured.rows["seed"]).tolist()
            by_seed = (rows_lib.select(measured.rows, seed=number) for number in numbers)
            cells[f"{text}: perplexity"] = _over_seeds(
                map(summaries.perplexity, by_seed), ratios=True
            )
        cells["seeds"] = str(len(member.seeds))
        lines.append((member.index, cells))
    description = describe_seeds([run.config for member in members for run in member.runs])
    caption = format_caption("over_seeds", seeds=description)
    yield "Over seeds", "", Table.from_cells(lines, caption=caption)


def _over_seeds(values: Iterable[float], *, ratios: bool = False, shares: bool = False) -> str:
    """Return `12.3 [10.1, 15]`, the mean of the seeds and its interval; one seed has none."""
    values = list(values)
    numbers = summaries.over_seeds(np.array(values), ratios=ratios)
    if shares:
        mean, low, high = (f"{share:.2f}" for share in np.clip(numbers, 0, 1))
    else:
        mean, low, high = map(rounded, numbers)
    return f"{mean} [{low}, {high}]" if len(values) > 1 else mean
