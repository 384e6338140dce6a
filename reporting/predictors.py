"""L50 against what could bound it: lengths that the frequencies predict, and the trained length."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from evals.estimate import regression
from evals.estimate.effective_context import NOT_LEARNED
from evals.estimate.regression import Point, Regression
from model import rotary as rotary_lib
from reporting.curves import l50_mark
from reporting.members import Measurement, Member, tasks
from reporting.style import FAINT, INK, grid, looks, marked_lengths, member_legend, token_axis

NAMES = {
    "first_negative": "theory length",
    "quarter_period": "quarter period",
    "full_period": "full period",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Members with a base, of one trained length, on one task: L50 against every predictor.

    Attributes:
      task: as an expression.
      trained_length: tokens.
      members: those that learned the task.
      regressions: the predictor that errs least at a base left out first; empty where fewer than
        three bases were measured, as a line then says nothing.
    """

    task: str
    trained_length: int
    members: tuple[Member, ...]
    regressions: tuple[Regression, ...]


def comparisons(members: Sequence[Member]) -> list[Comparison]:
    """Of every task and trained length with at least two bases that were learned."""
    found = []
    for task in tasks(members):
        for length in sorted({member.trained_length for member in members}):
            chosen = tuple(
                member
                for member in members
                if member.base is not None
                and member.trained_length == length
                and task in member.estimates
                and member.estimates[task].verdict != NOT_LEARNED
            )
            if len({member.base for member in chosen}) > 1:
                found.append(
                    Comparison(
                        task=task,
                        trained_length=length,
                        members=chosen,
                        regressions=tuple(_regressions(chosen, task)),
                    )
                )
    return found


def _regressions(members: Sequence[Member], task: str) -> list[Regression]:
    points = [
        Point.of(estimate, base=member.label, seed=seed, predictors=vars(member.theory))
        for member in members
        for seed, estimate in _nearest(member, task).by_seed.items()
    ]
    try:
        return regression.compare(points)
    except ValueError:  # fewer than three bases measured
        return []


def _nearest(member: Member, task: str) -> Measurement:
    measured = member.nearest(task)
    assert measured is not None
    return measured


def against_predictors(comparison: Comparison, members: Sequence[Member]) -> Figure:
    """A panel a predictor, log-log: L50, the regression line, and the line y = x."""
    figure, panels = grid(len(NAMES), height=4.3, sharey=True)
    look = looks(members)
    estimates = [member.estimates[comparison.task] for member in comparison.members]
    for ax, (name, title) in zip(panels, NAMES.items(), strict=True):
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        lengths = []
        for member, estimate in zip(comparison.members, estimates, strict=True):
            length = getattr(member.theory, name)
            if length is not None and length < np.inf:
                lengths.append(float(length))
                l50_mark(ax, member, length, estimate, look[member.index])
        if not lengths:
            ax.set_title(f"{title}: none")
            continue
        ax.set_xlim(min(lengths) / 1.8, max(lengths) * 1.8)
        values = [estimate.l50 for estimate in estimates]
        ax.set_ylim(min(values) / 2.2, 2.6 * max(values))
        ends = np.array(ax.get_xlim())
        ax.plot(ends, ends, color=FAINT, lw=1, ls=(0, (1, 2)), zorder=1)
        fitted = [each for each in comparison.regressions if each.predictor == name]
        for line in fitted:
            inside = np.array([min(lengths), max(lengths)])
            ax.plot(inside, 2**line.intercept * inside**line.slope, color=INK, lw=1.3, zorder=2)
        text = _says(fitted[0]) if fitted else "no line: fewer than\nthree bases measured"
        ax.set_title(title, pad=46)
        ax.annotate(
            text, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8.5
        )
        marked_lengths(ax.xaxis, map(round, lengths))
        token_axis(ax.yaxis)
    figure.supxlabel("predicted length (tokens, log scale)", fontsize=10)
    panels[0].set_ylabel("effective context (tokens, log scale)")
    same = Line2D([], [], color=FAINT, ls=(0, (1, 2)), lw=1, label="y = x")
    line = Line2D([], [], color=INK, lw=1.3, label="regression")
    member_legend(figure, comparison.members, [same, line], look, marker="o")
    return figure


def _says(line: Regression) -> str:
    return (
        f"slope {line.slope:.2f} [{line.slope_low:.2f}, {line.slope_high:.2f}]\n"
        f"intercept {line.intercept:.2f} [{line.intercept_low:.2f}, {line.intercept_high:.2f}]\n"
        f"a base left out: ±{line.error:.2f} octaves"
    )


def reading(comparison: Comparison) -> str:
    """What the regressions say, in one sentence."""
    if not comparison.regressions:
        return "Fewer than three bases have a measured effective context: no line is drawn."
    errors = {NAMES[each.predictor]: round(each.error, 2) for each in comparison.regressions}
    least = min(errors.values())
    best = " and ".join(name for name, error in errors.items() if error == least)
    text = f"A base left out is predicted best by the {best}, to {least:.2f} octaves"
    rest = [f"{name} {error:.2f}" for name, error in errors.items() if error > least]
    if rest:
        text += f" ({', '.join(rest)})"
    theory = next((r for r in comparison.regressions if r.predictor == "first_negative"), None)
    if theory is None:
        return f"{text}."
    times, low, high = (2**x for x in (theory.offset, theory.offset_low, theory.offset_high))
    return (
        f"{text}; on the theory length the slope is {theory.slope:.2f} [{theory.slope_low:.2f}, "
        f"{theory.slope_high:.2f}], and effective context is {times:.2g} times as long "
        f"[{low:.2g}, {high:.2g}], where a bound that is reached would have 1 and 1."
    )


def by_trained_length(members: Sequence[Member], task: str) -> list[list[Member]]:
    """Members that differ in their trained length and no other part of their model, ascending."""
    series: dict[object, list[Member]] = {}
    for member in members:
        if task in member.estimates:
            series.setdefault(member.config.model, []).append(member)
    found = [sorted(each, key=lambda m: m.trained_length) for each in series.values()]
    return [each for each in found if len({member.trained_length for member in each}) > 1]


def name(series: Sequence[Member]) -> str:
    """What a series of `by_trained_length` is called: its schedule, and window if it has one."""
    model = series[0].config.model
    schedule = rotary_lib.expression(model.rotary)
    return f"{schedule}, window {model.window}" if model.window else schedule


def against_trained_length(members: Sequence[Member], task: str) -> Figure:
    """A line a base: does L50 stop growing with the trained length?"""
    figure = Figure(figsize=(9.2, 5), layout="constrained")
    ax = figure.subplots()
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    look = looks(members)
    handles, values = [], []
    every = by_trained_length(members, task)
    for place, series in enumerate(every):
        learned = [m for m in series if m.estimates[task].verdict != NOT_LEARNED]
        color = look[series[0].index].color
        dash = look[series[0].index].linestyle if series[0].base is None else "-"
        # Side by side: what is farther than could be asked lies on one height.
        aside = 2 ** (0.07 * (place - (len(every) - 1) / 2))
        x = [aside * member.trained_length for member in learned]
        y = [member.estimates[task].l50 for member in learned]
        ax.plot(x, y, color=color, ls=dash, lw=1.3)
        for member, at in zip(learned, x, strict=True):
            l50_mark(ax, member, at, member.estimates[task], look[member.index])
        values += y
        handles.append(Line2D([], [], color=color, ls=dash, lw=2.2, label=name(series)))
    lengths = sorted({member.trained_length for member in members})
    ends = [lengths[0] / 1.3, lengths[-1] * 1.3]
    ax.plot(ends, ends, color=FAINT, lw=1, ls=(0, (1, 2)), zorder=1)
    ax.set_xlim(*ends)
    ax.set_ylim(min(values + lengths) / 1.6, max(values + lengths) * 1.7)
    marked_lengths(ax.xaxis, lengths)
    token_axis(ax.yaxis)
    ax.set_xlabel("trained length T (tokens, log scale)")
    ax.set_ylabel("effective context (tokens, log scale)")
    ax.set_title(f"Effective context on {task} against trained length")
    handles.append(Line2D([], [], color=FAINT, ls=(0, (1, 2)), lw=1, label="as far as trained"))
    figure.legend(handles=handles, loc="outside right center")
    return figure
