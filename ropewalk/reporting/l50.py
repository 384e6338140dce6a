"""Marks of effective context, the same in every figure."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ropewalk.evals.estimate.effective_context import UNDETERMINED, Estimate
from ropewalk.reporting.members import Member
from ropewalk.utils.figures import PAPER, error_bar, note, tag

WIDTH = 1.8  # of intervals, points

Point: TypeAlias = tuple[float, Member, Estimate]  # position on the x axis, and its mark's


def _arrow(ax: Axes, x: float, y: float, length: float, **style: Any) -> list[Artist]:
    """Draw an arrow from (x, y), `length` points upward."""
    artist = note(ax, "", (x, y), (0, length), arrowprops={"arrowstyle": "<|-", **style})
    return [artist.arrow_patch] if artist.arrow_patch else []


def draw_l50(ax: Axes, x: float, member: Member, estimate: Estimate, size: float = 5) -> None:
    """Draw L50 with its 95% interval, or an arrow if it lies beyond the distances tested.

    The mark is a cross at the bottom if there is none (`Estimate.has_l50`); a bar crosses it if the
    curve dips. An interval without a dot is undetermined.
    """
    l50 = estimate.mark
    color: dict[str, Any] = {"color": member.look.color}
    dot = {"marker": "o", "ms": size, "ls": "none", "zorder": 4, **color}
    artists: list[Artist] = []
    if not estimate.has_l50:
        bottom = ax.get_xaxis_transform()
        artists += ax.plot(x, 0.03, "x", ms=size, mew=1.8, zorder=4, transform=bottom, **color)
    elif estimate.verdict.startswith((">", "<")):
        artists += ax.plot(x, l50, **dot)
        length = 4 * size if estimate.verdict.startswith(">") else -4 * size
        head = {"mutation_scale": 1.8 * size, "lw": WIDTH, "shrinkB": 0}
        artists += _arrow(ax, x, l50, length, **head, **color)
    else:
        low = max(estimate.ci_low, estimate.shortest)
        high = min(estimate.ci_high, estimate.longest)
        dot |= {"marker": "none"} if estimate.verdict == UNDETERMINED else {}
        artists += error_bar(ax, x, l50, (low, high), elinewidth=WIDTH, capsize=size / 2, **dot)
        ends = (low, estimate.ci_low == 0, "v"), (high, np.isinf(estimate.ci_high), "^")
        for end, is_open, marker in ends:
            if is_open:  # the interval continues beyond the distances tested
                artists += ax.plot(x, end, marker, ms=0.9 * size, **color)
    if estimate.dips and estimate.has_l50:
        artists += ax.plot(x, l50, marker="_", ms=0.6 * size, mew=1.6, color=PAPER, zorder=5)
    tag(artists, member, _tooltip(member, estimate, f"{estimate}; {estimate.accuracies}"))


def _tooltip(member: Member, estimate: Estimate, text: str) -> str:
    return f"{member.label}, {estimate.task} at {estimate.length}: {text}"


def draw_accuracies(ax: Axes, x: float, member: Member, estimate: Estimate, size: float) -> None:
    """Draw mean accuracy as a dot, and the worst bin as a triangle."""
    worst = estimate.worst
    style = {"color": member.look.color, "capsize": size / 2, "ls": "none", "zorder": 4}
    ends = estimate.mean_accuracy_low, estimate.mean_accuracy_high
    mean = {"marker": "o", "ms": 0.8 * size, "elinewidth": WIDTH}
    artists = error_bar(ax, x, estimate.mean_accuracy, ends, **mean, **style)
    ends = worst.ci_low, worst.ci_high
    look = {"marker": "v", "ms": 0.6 * size, "elinewidth": 0.9}
    artists += error_bar(ax, x, worst.accuracy, ends, **look, **style)
    text = f"worst bin {estimate.worst_text}, mean {estimate.mean_text}"
    tag(artists, member, _tooltip(member, estimate, text))


def draw_line(ax: Axes, points: Sequence[Point], number: int, count: int) -> list[Line2D]:
    """Draw the marks of learned estimates and the line through measured ones; return the line.

    Marks beyond the longest distance have equal heights, so line `number` of `count` is shifted
    sideways, by at most a tenth of an octave.
    """
    shift = 2 ** (0.2 * ((number + 0.5) / count - 0.5))
    known = [(x * shift, member, e) for x, member, e in points if e.has_l50]
    for x, member, estimate in known:
        draw_l50(ax, x, member, estimate)
    line = [x for x, *_ in known], [estimate.l50 for *_, estimate in known]
    return ax.plot(*line, lw=1.3, **points[0][1].look.line)
