"""Effective context as a mark, the same in every figure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from evals.estimate.effective_context import MEASURED, NOT_LEARNED, Estimate
from reporting.looks import PAPER
from reporting.members import Member
from reporting.style import tag
from theory.capability import Forecast


class Shape(NamedTuple):
    """Of a mark: matplotlib's marker, its size, opacity, and the width of its interval (points)."""

    marker: str = "o"
    size: float = 5
    alpha: float = 1.0
    width: float = 1.8


DOT = Shape()


def mark(ax: Axes, x: float, member: Member, estimate: Estimate, shape: Shape = DOT) -> None:
    """A mark with its 95% interval, or an arrow to where L50 lies beyond what was asked.

    Hollow, at the lowest tick, where the task was not learned; with a hole where accuracy dips.
    """
    l50, size = estimate.l50, shape.size
    style = {"color": member.look.color, "alpha": shape.alpha}
    dot = {"marker": shape.marker, "ms": size, "ls": "none", "zorder": 4, **style}
    artists: list[Artist] = []
    if estimate.verdict == NOT_LEARNED:
        artists += ax.plot(x, ax.get_yticks()[0], mfc="white", mew=1.4, **dot)
    else:
        artists += ax.plot(x, l50, **dot)
    if estimate.verdict == MEASURED:
        low, high = (
            max(estimate.ci_low, estimate.shortest, 1),
            min(estimate.ci_high, estimate.longest),
        )
        lines = {"elinewidth": shape.width, "capsize": size / 2, "zorder": 3}
        bar = ax.errorbar(x, l50, [[l50 - low], [high - l50]], fmt="none", **lines, **style)
        artists += bar.get_children()
        ends = (low, estimate.ci_low == 0, "v"), (high, np.isinf(estimate.ci_high), "^")
        for end, leaves, marker in ends:
            if leaves:  # the interval goes on beyond what was asked
                artists += ax.plot(x, end, marker, ms=0.9 * size, **style)
    elif estimate.verdict != NOT_LEARNED:
        away = 4 * size if estimate.verdict.startswith(">") else -4 * size
        head = {"arrowstyle": "<|-", "mutation_scale": 1.8 * size, "lw": shape.width, "shrinkB": 0}
        offset = {"textcoords": "offset points", "arrowprops": {**head, **style}}
        arrow = ax.annotate("", (x, l50), (0, away), **offset)
        artists += filter(None, [arrow.arrow_patch])
    if estimate.dips:
        artists += ax.plot(x, l50, marker="o", ms=0.45 * size, color=PAPER, ls="none", zorder=5)
    said = f"{estimate}; {estimate.accuracies}"
    tag(artists, member, f"{member.label}, {estimate.task} at {estimate.length}: {said}")


def accuracies(ax: Axes, x: float, member: Member, estimate: Estimate, shape: Shape) -> None:
    """The mean accuracy, as the mark of L50, and the worst bin below it, a hollow triangle."""
    worst = estimate.worst
    style = {"color": member.look.color, "alpha": shape.alpha}
    bar = {"fmt": "none", "capsize": shape.size / 2, "zorder": 3, **style}
    mean, ends = estimate.mean_accuracy, (estimate.mean_accuracy_low, estimate.mean_accuracy_high)
    found = (
        (mean, ends, {"marker": shape.marker, "ms": 0.8 * shape.size}, shape.width),
        (worst.accuracy, (worst.ci_low, worst.ci_high), {"marker": "v", "mfc": PAPER}, 0.9),
    )
    artists: list[Artist] = []
    for value, (low, high), look, width in found:
        reach = [[max(value - low, 0)], [max(high - value, 0)]]
        artists += ax.errorbar(x, value, reach, elinewidth=width, **bar).get_children()
        artists += ax.plot(
            x, value, ls="none", zorder=4, **{"ms": 0.7 * shape.size, **look, **style}
        )
    said = f"worst bin {estimate.worst_text}, mean {estimate.mean_text}"
    tag(artists, member, f"{member.label}, {estimate.task} at {estimate.length}: {said}")


def forecast(ax: Axes, x: float, member: Member, made: Forecast) -> None:
    """A hollow diamond where L50 was forecast, with an arrow if that is beyond what was asked."""
    look = {"color": member.look.color, "alpha": 0.9}
    diamond = ax.plot(x, made.l50, "D", ms=6, mfc="none", mew=1.3, zorder=3, **look)
    artists: list[Artist] = [*diamond]
    if made.beyond:
        head = {"arrowstyle": "<|-,head_width=0.15", "mutation_scale": 9, "lw": 1, "shrinkB": 3}
        arrow = ax.annotate(
            "", (x, made.l50), (0, 20), textcoords="offset points", arrowprops=head | look
        )
        artists += filter(None, [arrow.arrow_patch])
    tag(artists, member, f"{member.label}: forecast {made}")


def joined(
    ax: Axes, places: Sequence[float], found: Sequence[tuple[Member, Estimate]]
) -> list[Line2D]:
    """Marks of the estimates that were learned, and the line through them, which is returned."""
    known = [
        (x, member, estimate)
        for x, (member, estimate) in zip(places, found, strict=True)
        if estimate.verdict != NOT_LEARNED
    ]
    for x, member, estimate in known:
        mark(ax, x, member, estimate)
    line = [x for x, *_ in known], [estimate.l50 for *_, estimate in known]
    look = found[0][0].look
    return ax.plot(*line, color=look.color, ls=look.linestyle, lw=1.3)
