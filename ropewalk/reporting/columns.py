"""Columns of retrieval tasks: the cells of tables, and the numbers of results.csv behind them."""

import math
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from ropewalk.evals.estimate.effective_context import Estimate
from ropewalk.reporting.page import NONE
from ropewalk.reporting.predictions import Predictions

Cells = dict[str, str]  # by column head


class Column(NamedTuple):
    """One cell of a table.

    Attributes:
      head: column head; empty: only results.csv has the numbers.
      text: function of the estimate, or of the predictions, that returns the cell.
      numbers: attributes of the estimate or the predictions, by column of results.csv.
      is_theory: whether it shows predictions.
      is_more: whether the page's table that is collapsed has it, not the first one.
      on_terminal: whether tables of a terminal have it.
    """

    head: str
    text: Callable[[Any], str]
    numbers: Mapping[str, str]
    is_theory: bool = False
    is_more: bool = False
    on_terminal: bool = True


def format_tokens(count: float | None) -> str:
    """Return a length of theory as text."""
    if count is None:
        return "none"
    return "∞" if math.isinf(count) else f"{count:,.0f}"


def _period(name: str) -> Column:
    def text(theory: Predictions) -> str:
        return format_tokens(getattr(theory, name))

    return Column(name.replace("_", " "), text, {name: name}, is_theory=True, is_more=True)


def _format_dip(estimate: Estimate) -> str:
    if not estimate.dips:
        return NONE
    return f"{estimate.dip:.2f} at {estimate.dip_distance:.0f}, then {estimate.revival:.2f}"


def _with_ends(name: str, attribute: str, ends: str) -> dict[str, str]:
    return {name: attribute, f"{name}_low": f"{ends}low", f"{name}_high": f"{ends}high"}


COLUMNS = (
    Column(
        "effective context [95% CI]",
        str,
        _with_ends("l50", "l50", "ci_") | {"verdict": "verdict"},
    ),
    Column(
        "theory length",
        lambda theory: format_tokens(theory.first_violation),
        {"theory_length": "first_violation"},
        is_theory=True,
    ),
    Column(
        "worst bin",
        attrgetter("worst_text"),
        _with_ends("worst", "worst.accuracy", "worst.ci_")
        | {"worst_first": "worst.low", "worst_last": "worst.high"},
    ),
    Column(
        "mean accuracy",
        attrgetter("mean_text"),
        {"score_low": "mean_accuracy_low", "score_high": "mean_accuracy_high"},
    ),
    Column(
        "dip",
        _format_dip,
        {name: name for name in ("dip", "dip_distance", "revival", "revival_distance")},
        is_more=True,
        on_terminal=False,
    ),
    Column(
        "L85",
        attrgetter("l85_text"),
        _with_ends("l85", "l85", "l85_"),
        is_more=True,
        on_terminal=False,
    ),
    Column(
        "ceiling",
        lambda estimate: f"{estimate.ceiling:.2f}",
        _with_ends("ceiling", "ceiling", "ceiling_"),
        is_more=True,
    ),
    _period("quarter_period"),
    _period("full_period"),
    Column("", str, {name: name for name in ("documents_needed", "floor")}),
)


def page_cells(theory: Predictions | None, estimate: Estimate | None) -> tuple[Cells, Cells]:
    """Return the cells of the page's first table, and those of the table that is collapsed."""
    cells: tuple[Cells, Cells] = ({}, {})
    for column in filter(lambda column: column.head, COLUMNS):
        source = theory if column.is_theory else estimate
        cells[column.is_more][column.head] = column.text(source) if source else NONE
    return cells


def terminal_cells(theory: Predictions | None, estimate: Estimate) -> Cells:
    """Return the cells of a terminal: those of the page, accuracies without intervals."""
    first, more = page_cells(theory, estimate)
    shown = (column.head for column in COLUMNS if column.head and column.on_terminal)
    cells = {head: (first | more)[head] for head in shown}
    short = {head: re.sub(r" \[.*?\]", "", cells[head]) for head in ("worst bin", "mean accuracy")}
    return cells | short


def numbers(theory: Predictions | None, estimate: Estimate | None) -> dict[str, Any]:
    """Return the numbers of results.csv; without an estimate, those of theory."""
    values = {
        name: attrgetter(attribute)(source)
        for column in COLUMNS
        if (source := theory if column.is_theory else estimate)
        for name, attribute in column.numbers.items()
    }
    if estimate:
        values["documents_needed"] = values["documents_needed"] or math.nan
        if not estimate.has_l50:
            values |= {name: math.nan for name in values if name.startswith(("l50", "l85"))}
    return values
