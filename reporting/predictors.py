"""L50 against what could bound it: what theory says of the model, and the trained length."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate import regression
from evals.estimate.effective_context import MEASURED, NOT_LEARNED
from evals.estimate.regression import Point, Regression
from model import rotary as rotary_lib
from reporting import l50
from reporting.looks import FAINT, INK
from reporting.members import Member, tasks
from reporting.style import ARROW, grid, handle, marked_lengths, member_legend, token_axis

# All lengths in tokens but for the base, which is only a number that lengths may go with.
BASE = "base"
NAMES = {
    "forecast": "forecast",
    "first_violation": "theory length",
    "quarter_period": "quarter period",
    "arccos_bound": "arccos bound",
    BASE: "base",
}
Predicted = Mapping[str, float | None]
_DIAGONAL: dict[str, Any] = {"color": FAINT, "lw": 1, "ls": (0, (1, 2))}


class Comparison(NamedTuple):
    """Members with a base, of one trained length, on one task: L50 against every predictor.

    Attributes:
      task: as an expression.
      trained_length: tokens.
      members: those that learned the task.
      predicted: by each member, what each of `NAMES` says; None where it says nothing.
      regressions: the predictor that errs least at a base left out first; empty where fewer than
        three bases were measured, as a line then says nothing.
    """

    task: str
    trained_length: int
    members: tuple[Member, ...]
    predicted: tuple[Predicted, ...]
    regressions: tuple[Regression, ...]


def comparisons(members: Sequence[Member]) -> list[Comparison]:
    """Of every task and trained length with at least two bases that were learned."""
    found: dict[tuple[str, int], list[Member]] = {}
    for task in tasks(members):
        for member in sorted(_learned(members, task), key=lambda m: m.trained_length):
            if member.base is not None:
                found.setdefault((task, member.trained_length), []).append(member)
    compared = []
    for (task, length), chosen in found.items():
        if len({member.base for member in chosen}) > 1:
            predicted = [_predicted(member, task) for member in chosen]
            lines = _regressions(chosen, predicted, task)
            compared.append(Comparison(task, length, tuple(chosen), tuple(predicted), tuple(lines)))
    return compared


def _predicted(member: Member, task: str) -> Predicted:
    """What each of `NAMES` says of a member that learned the task.

    A forecast beyond the distances asked counts as the longest of them, where L50 ends as well.
    """
    made = member.forecasts[task]
    found = {**vars(member.theory), BASE: member.base, "forecast": made and max(1, made.l50)}
    return {name: found[name] for name in NAMES}


def _learned(members: Sequence[Member], task: str) -> list[Member]:
    return [
        member
        for member in members
        if task in member.estimates and member.estimates[task].verdict != NOT_LEARNED
    ]


def _regressions(
    members: Sequence[Member], predicted: Sequence[Predicted], task: str
) -> list[Regression]:
    points = [
        Point.of(estimate, base=member.label, predictors=says)
        for member, says in zip(members, predicted, strict=True)
        if (nearest := member.nearest(task))
        for estimate in nearest.by_seed.values()
        if estimate.verdict != NOT_LEARNED
    ]
    try:
        return regression.compare(points)
    except ValueError:  # fewer than three bases measured
        return []


def against_predictors(comparison: Comparison) -> Figure:
    """A panel a predictor, log-log: L50, the regression line, and the line y = x.

    Bases that see beyond what was asked are arrows, which the line does not know.
    """
    figure, panels = grid(len(NAMES), height=4.3, sharey=True)
    for ax, predictor in zip(panels, NAMES, strict=True):
        _predictor_panel(ax, comparison, predictor)
    figure.supxlabel("predicted length (tokens, log scale), or the base", fontsize=10)
    figure.supylabel("effective context (tokens, log scale)", fontsize=10)
    handles = [handle("y = x", **_DIAGONAL), handle("regression", color=INK, lw=1.3)]
    if any(m.estimates[comparison.task].verdict != MEASURED for m in comparison.members):
        style = {"color": INK, "ls": "none", "marker": ARROW, "ms": 9}
        handles.append(handle("beyond what was\nasked: not fitted", **style))
    member_legend(figure, comparison.members, handles, marker="o")
    return figure


def _predictor_panel(ax: Axes, comparison: Comparison, predictor: str) -> None:
    lengths, fitted, values = [], [], []
    for member, says in zip(comparison.members, comparison.predicted, strict=True):
        estimate = member.estimates[comparison.task]
        values.append(estimate.l50)
        length = says[predictor]
        if length is not None and length < np.inf:
            lengths.append(float(length))
            fitted += [length] if estimate.verdict == MEASURED else []
            l50.mark(ax, length, member, estimate)
    if not lengths:
        ax.set_title(f"{NAMES[predictor]}: none")
        return
    shortest, longest = min(lengths), max(lengths)
    _log_axes(ax, (shortest / 1.8, longest * 1.8), (min(values) / 2.2, 2.6 * max(values)))
    if predictor != BASE:
        _diagonal(ax)
    marked_lengths(ax.xaxis, map(round, lengths))
    text = "no line: fewer than\nthree bases measured"
    for line in comparison.regressions:
        if line.predictor == predictor:
            ends = np.array([min(fitted), max(fitted)])
            ax.plot(ends, 2**line.intercept * ends**line.slope, color=INK, lw=1.3, zorder=2)
            text = _says(line)
    ax.set_title(NAMES[predictor], pad=58)
    ax.annotate(
        text, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8.5
    )


def _log_axes(ax: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Log-log axes with these limits."""
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlim(*x)
    ax.set_ylim(*y)
    token_axis(ax.yaxis)


def _diagonal(ax: Axes) -> None:
    """The line y = x from side to side, whatever the heights shown."""
    x, y = ax.get_xlim(), ax.get_ylim()
    ax.plot(x, x, zorder=1, **_DIAGONAL)
    ax.set_ylim(*y)


def _says(line: Regression) -> str:
    text = (
        f"slope {_interval(line, 'slope')}\nintercept {_interval(line, 'intercept')}\n"
        f"a base left out: ±{line.error:.2f} octaves"
    )
    return text if line.predictor == BASE else f"y = x: ±{line.as_is:.2f} octaves\n{text}"


def _interval(line: Regression, name: str) -> str:
    value, low, high = (getattr(line, f"{name}{end}") for end in ("", "_low", "_high"))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def reading(comparison: Comparison) -> str:
    """What the regressions say, in one or two sentences."""
    if not comparison.regressions:
        return "Fewer than three bases have a measured effective context: no line is drawn."
    # In the order of NAMES: the periods and the base often tie.
    lines = {line.predictor: line for line in comparison.regressions}
    errors = {title: round(lines[each].error, 2) for each, title in NAMES.items() if each in lines}
    least = min(errors.values())
    best = " and ".join(title for title, error in errors.items() if error == least)
    text = f"A base left out is predicted best by the {best}, to {least:.2f} octaves"
    rest = sorted((error, title) for title, error in errors.items() if error > least)
    if rest:
        text += f" ({', '.join(f'{title} {error:.2f}' for error, title in rest)})"
    as_is = ", ".join(
        f"{NAMES[each]} {lines[each].as_is:.2f}" for each in NAMES if each in lines and each != BASE
    )
    text += f"; taken as they are, with nothing fitted, they err by {as_is}" if as_is else ""
    theory = lines.get("first_violation")
    if theory is not None:
        times, low, high = (2**x for x in (theory.offset, theory.offset_low, theory.offset_high))
        text += (
            f"; on the theory length the slope is {_interval(theory, 'slope')}, and effective "
            f"context is {times:.2g} times as long "
            f"[{low:.2g}, {high:.2g}], where a bound that is reached would have 1 and 1"
        )
    line = comparison.regressions[0]
    if line.num_censored:
        text += (
            f". The lines are fitted to the effective context of {line.num_bases} bases; that of "
            f"{line.num_censored} more lies beyond what was asked"
        )
    return f"{text}."


def by_trained_length(members: Sequence[Member], task: str) -> list[list[Member]]:
    """Members that differ in their trained length and no other part of their model, ascending."""
    series: dict[object, list[Member]] = {}
    for member in members:
        if task in member.estimates:
            series.setdefault(member.config.model, []).append(member)
    found = [sorted(each, key=lambda m: m.trained_length) for each in series.values()]
    return [each for each in found if len({member.trained_length for member in each}) > 1]


def name(series: Sequence[Member]) -> str:
    """What a series of `by_trained_length` is called: its variant, and window if it has one."""
    model = series[0].config.model
    variant = rotary_lib.label(model.rotary)
    return f"{variant}, window {model.window}" if model.window else variant


def against_trained_length(members: Sequence[Member], task: str) -> Figure:
    """A line a base: does L50 stop growing with the trained length?"""
    figure = Figure(figsize=(9.2, 5), layout="constrained")
    ax = figure.subplots()
    lengths = sorted({member.trained_length for member in members})
    handles, values = [], list(lengths)
    every = by_trained_length(members, task)
    for place, series in enumerate(every):
        look = series[0].look
        handles.append(handle(name(series), color=look.color, ls=look.linestyle, lw=2.2))
        # Side by side: what is farther than could be asked lies on one height.
        aside = 2 ** (0.07 * (place - (len(every) - 1) / 2))
        places = [aside * member.trained_length for member in series]
        l50.joined(ax, places, [(member, member.estimates[task]) for member in series])
        values += [member.estimates[task].l50 for member in _learned(series, task)]
    _log_axes(ax, (lengths[0] / 1.3, lengths[-1] * 1.3), (min(values) / 1.6, max(values) * 1.7))
    _diagonal(ax)
    marked_lengths(ax.xaxis, lengths)
    ax.set_xlabel("trained length T (tokens, log scale)")
    ax.set_ylabel("effective context (tokens, log scale)")
    ax.set_title(f"Effective context on {task} against trained length")
    handles.append(handle("as far as trained", **_DIAGONAL))
    figure.legend(handles=handles, loc="outside right center")
    return figure
