"""L50 against its possible bounds: predictions from the frequencies, and the trained length."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate import regression
from evals.estimate.effective_context import MEASURED
from evals.estimate.regression import Point, Regression
from reporting import l50
from reporting.labels import labels
from reporting.members import Member, learned, tasks
from utils.figures import (
    ARROW,
    INK,
    REFERENCE,
    add_legend,
    folded,
    grid,
    handle,
    label_lengths,
    mark_handle,
    new_figure,
    note,
    set_title,
    token_axis,
)

# Lengths in tokens, except for the base.
BASE = "base"
NAMES = {
    "D_H": "D_H",
    "first_violation": "theory length",
    "quarter_period": "quarter period",
    BASE: "base",
}
Predicted = Mapping[str, float | None]


class Comparison(NamedTuple):
    """L50 on one task against every predictor, for members with a base and one trained length.

    Attributes:
      task: expression of the task.
      trained_length: tokens.
      members: those that learned the task.
      predicted: by member, the value of each of `NAMES`; None if it does not exist.
      regressions: by ascending leave-one-base-out error; empty if fewer than three bases were
        measured.
    """

    task: str
    trained_length: int
    members: tuple[Member, ...]
    predicted: tuple[Predicted, ...]
    regressions: tuple[Regression, ...]


def compare(members: Sequence[Member]) -> list[Comparison]:
    """Return a comparison per task and trained length with at least two learned bases."""
    groups: dict[tuple[str, int], list[Member]] = {}
    for task in tasks(members):
        for member in sorted(learned(members, task), key=lambda m: m.trained_length):
            if member.base is not None:
                groups.setdefault((task, member.trained_length), []).append(member)
    comparisons = []
    for (task, length), group in groups.items():
        if len({member.base for member in group}) > 1:
            predicted = tuple(_predict(member, task) for member in group)
            lines = tuple(_regress(group, predicted, task))
            comparisons.append(Comparison(task, length, tuple(group), predicted, lines))
    return comparisons


def _predict(member: Member, task: str) -> Predicted:
    """Return the predictions for a member; D_H is clipped at the longest distance tested."""
    bound = member.bounds[task]
    values = vars(member.theory) | {
        BASE: member.base,
        "D_H": bound and max(1, bound.l50),
    }
    return {name: values[name] for name in NAMES}


def _regress(
    members: Sequence[Member], predicted: Sequence[Predicted], task: str
) -> list[Regression]:
    points = [
        Point.from_estimate(estimate, base=member.label, predictors=values)
        for member, values in zip(members, predicted, strict=True)
        if (nearest := member.nearest(task))
        for estimate in nearest.by_seed.values()
        if estimate.has_l50
    ]
    try:
        return regression.compare(points)
    except ValueError:  # fewer than three bases measured
        return []


def draw_predictors(comparison: Comparison) -> Figure:
    """Draw L50 against each predictor (log-log), with the regression line and the line y = x.

    Bases beyond the longest distance tested are arrows and excluded from the fit.
    """
    figure, panels = grid(len(NAMES), height=4.3, sharey=True)
    for (ax,), predictor in zip(panels, NAMES, strict=True):
        _draw_predictor(ax, comparison, predictor)
    figure.supxlabel("predicted length (tokens, log scale), or base")
    figure.supylabel("effective context (tokens, log scale)")
    names: dict[str, list[str]] = {}  # by color: points of one base look alike
    for member in comparison.members:
        names.setdefault(member.look.color, []).append(folded(member.label, 40))
    handles = [mark_handle("\n".join(n), "o", color=color) for color, n in names.items()]
    handles.append(handle("y = x", **REFERENCE))
    if comparison.regressions:
        handles.append(handle("regression", color=INK, lw=1.3))
    if any(m.estimates[comparison.task].verdict != MEASURED for m in comparison.members):
        label = "beyond the longest distance\ntested, or undetermined: not fitted"
        handles.append(mark_handle(label, ARROW, ms=9))
    add_legend(figure, handles)
    return figure


def _draw_predictor(ax: Axes, comparison: Comparison, predictor: str) -> None:
    lengths, fitted, values = [], [], []
    for member, predicted in zip(comparison.members, comparison.predicted, strict=True):
        estimate = member.estimates[comparison.task]
        values.append(estimate.mark)
        length = predicted[predictor]
        if length is not None and length < np.inf:
            lengths.append(float(length))
            fitted += [length] if estimate.verdict == MEASURED else []
            l50.draw_l50(ax, length, member, estimate)
    if not lengths:
        ax.set_title(f"{NAMES[predictor]}: none")
        return
    shortest, longest = min(lengths), max(lengths)
    _set_log_axes(ax, (shortest / 1.8, longest * 1.8), (min(values) / 2.2, 2.6 * max(values)))
    if predictor != BASE:
        _draw_diagonal(ax)
    label_lengths(ax.xaxis, map(round, lengths))
    text = ""
    for line in comparison.regressions:
        if line.predictor == predictor:
            ends = np.array([min(fitted), max(fitted)])
            ax.plot(ends, 2**line.intercept * ends**line.slope, color=INK, lw=1.3, zorder=2)
            text = _describe_line(line)
    ax.set_title(NAMES[predictor], pad=6 + 12 * (1 + text.count("\n")) * bool(text))
    if text:
        note(ax, text, (0, 1), (0, 4), xycoords="axes fraction", fontsize=8.5)


def _set_log_axes(ax: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Set log-log axes with these limits."""
    ax.set_xscale("log", base=2)
    token_axis(ax.yaxis)
    ax.set(xlim=x, ylim=y)


def _draw_diagonal(ax: Axes) -> None:
    """Draw the line y = x without changing the limits of y."""
    x, y = ax.get_xlim(), ax.get_ylim()
    ax.plot(x, x, zorder=1, **REFERENCE)
    ax.set_ylim(*y)


def _describe_line(line: Regression) -> str:
    text = (
        f"slope {_interval(line, 'slope')}\nintercept {_interval(line, 'intercept')}\n"
        f"leave-one-base-out: ±{line.error:.2f} octaves"
    )
    return text if line.predictor == BASE else f"y = x: ±{line.as_is:.2f} octaves\n{text}"


def _interval(line: Regression, name: str) -> str:
    value, low, high = (getattr(line, f"{name}{end}") for end in ("", "_low", "_high"))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def describe(comparison: Comparison) -> dict[str, Any]:
    """Return the values of the caption: the predictor with the smallest error, and the bases."""
    lines = comparison.regressions
    errors = {line.predictor: round(line.error, 2) for line in lines}
    error = min(errors.values(), default=0.0)
    # In the order of NAMES, because the periods and the base often tie.
    best = [NAMES[name] for name in NAMES if errors.get(name) == error]
    num_bases, num_censored = (lines[0].num_bases, lines[0].num_censored) if lines else (0, 0)
    return {
        "best": " and ".join(best),
        "error": f"{error:.2f}",
        "num_bases": num_bases,
        "num_censored": num_censored,
    }


def group_trained_lengths(members: Sequence[Member], task: str) -> list[list[Member]]:
    """Return groups of members with equal models and several trained lengths, ascending."""
    series: dict[object, list[Member]] = {}
    for member in members:
        if task in member.estimates:
            series.setdefault(member.config.model, []).append(member)
    groups = [sorted(group, key=lambda m: m.trained_length) for group in series.values()]
    return [group for group in groups if len({member.trained_length for member in group}) > 1]


def series_names(groups: Sequence[Sequence[Member]]) -> list[str]:
    """Return the label of each group of `group_trained_lengths`."""
    return labels([group[0].config for group in groups])


def draw_trained_lengths(members: Sequence[Member], task: str) -> Figure:
    """Draw L50 against trained length, a line per model."""
    figure = new_figure(9.2, 5)
    ax = figure.subplots()
    lengths = sorted({member.trained_length for member in members})
    handles, values = [], list(lengths)
    groups = group_trained_lengths(members, task)
    for index, (series, name) in enumerate(zip(groups, series_names(groups), strict=True)):
        handles.append(handle(name, lw=2.2, **series[0].look.line))
        # Marks beyond the longest distance have equal heights: shift them sideways.
        shift = 2 ** (0.07 * (index - (len(groups) - 1) / 2))
        positions = [shift * member.trained_length for member in series]
        l50.draw_line(ax, positions, [(member, member.estimates[task]) for member in series])
        values += [member.estimates[task].mark for member in learned(series, task)]
    _set_log_axes(ax, (lengths[0] / 1.3, lengths[-1] * 1.3), (min(values) / 1.6, max(values) * 1.7))
    _draw_diagonal(ax)
    label_lengths(ax.xaxis, lengths)
    ax.set_xlabel("trained length T (tokens, log scale)")
    ax.set_ylabel("effective context (tokens, log scale)")
    set_title(ax, f"Effective context on {task} against trained length")
    handles.append(handle("trained length", **REFERENCE))
    add_legend(figure, handles)
    return figure
