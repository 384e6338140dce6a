"""Tables of results. The terminal, Markdown and the page have the same lines and columns."""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from evals import rows as rows_lib
from evals.estimate import summaries, thresholds
from evals.estimate.effective_context import Estimate
from experiment.config import TRAINED, ExperimentConfig
from experiment.run import RunDirectory
from reporting import predictors
from reporting.forecasts import Predictions
from reporting.labels import describe_seeds, name_runs
from reporting.measurements import Measurement, drop_diverged, measurements
from reporting.members import Member, describe_intervals, learned, make_members, tasks
from reporting.page import NONE, Line, Table, format_captions
from reporting.results import likelihoods, make_lines, write_csv
from theory.capability import Forecast
from utils.messages import printable
from utils.text_table import TextTable, print_tables

Cells: TypeAlias = dict[str, str]  # by head
Results: TypeAlias = Sequence[tuple[RunDirectory, ExperimentConfig, rows_lib.Rows]]


class Evaluation(NamedTuple):
    """A measurement, its first cells (a name), and the index of its member on the page."""

    first: Cells
    measured: Measurement
    index: int | None = None


class Results1(NamedTuple):
    """Lines of a table, with the title and the heads that a narrow terminal omits."""

    title: str
    lines: list[Line]
    optional: Sequence[str] = ()


# --- cells of one measurement --------------------------------------------------------------------


def context_cells(theory: Predictions, estimate: Estimate | None, bound: Forecast | None) -> Cells:
    """Return effective context beside D_H and the theory length."""
    return {
        "effective context [95% CI]": str(estimate or NONE),
        "D_H": str(bound or NONE),
        "theory length": _format_tokens(theory.first_violation),
        "worst bin": estimate.worst_text if estimate else NONE,
        "mean accuracy": estimate.mean_text if estimate else NONE,
    }


def more_context_cells(theory: Predictions, estimate: Estimate | None) -> Cells:
    """Return the cells that a page shows on demand."""
    dip = NONE
    if estimate and estimate.dips:
        dip = f"{estimate.dip:.2f} at {estimate.dip_distance:.0f}, then {estimate.revival:.2f}"
    return {
        "dip": dip,
        "L85": estimate.l85_text if estimate else NONE,
        "ceiling": f"{estimate.ceiling:.2f}" if estimate else NONE,
        "quarter period": _format_tokens(theory.quarter_period),
        "full period": _format_tokens(theory.full_period),
    }


def _format_tokens(count: float | None) -> str:
    if count is None:
        return "none"
    return "∞" if math.isinf(count) else f"{count:,.0f}"


def _retrieval_cells(measured: Measurement) -> Cells:
    """Return the cells of a terminal: the worst bin without its interval, no dip and no L85."""
    theory, estimate = measured.theory, measured.estimate
    cells = context_cells(theory, estimate, measured.forecast)
    cells["worst bin"] = re.sub(r" \[.*?\]", "", cells["worst bin"])
    more = more_context_cells(theory, estimate)
    return cells | {name: more[name] for name in ("ceiling", "quarter period", "full period")}


def _score_cells(measured: Measurement) -> Cells:
    """Return the share of correct answers."""
    return {
        "answers": f"{len(measured.rows['task']):,}",
        "correct": format_share(measured.rows, column="exact_match")
        if measured.kind == "score"
        else measured.text,
        "chance": f"{measured.rows['chance'][0]:.3g}",
    }


def _likelihood_cells(measured: Measurement) -> Cells:
    """Return all measures of the likelihood of text; those specific to the task are last."""
    cells = {"documents": f"{len(np.unique(measured.rows['document'])):,}"}
    for name, value in likelihoods(measured.rows).items():
        head, form = _LIKELIHOODS[name]
        cells[head] = format(value, form)
    columns = measured.task_columns.items()
    return cells | {name.replace("_", " "): f"{value:.4g}" for name, value in columns}
