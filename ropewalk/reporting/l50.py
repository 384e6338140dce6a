"""Marks of effective context, the same in every figure."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ropewalk.evals.estimate.effective_context import UNDETERMINED, Estimate
from ropewalk.reporting.members import Member
from ropewalk.utils.figures import PAPER, mark_handle, tag

_BEYOND = 1.4  # length of the arrow at an open end, as a factor of tokens

Point: TypeAlias = tuple[float, Member, Estimate]  # position on the x axis, and its mark's


def draw_l50(
    ax: Axes,
    place: float,
    member: Member,
    estimate: Estimate,
    size: float = 6,
    *,
    row: bool = False,
) -> None:
    """Draw L50 with its 95% interval, at this x; in a `row`, at this y, with tokens on the x axis.

    An arrow leads beyond the distances tested. An interval without a dot is undetermined; a hollow
    dot has a dip. The mark is a cross at the axis if there is none (`Estimate.has_l50`).
    """
    color, artists = member.stroke.color, []

    def plot(tokens: Sequence[float], marker: str, transform=None, **style) -> list[Artist]:
        x, y = tokens, [place] * len(tokens)
        options = {"color": color, "zorder": 4, "marker": marker, **style}
        options |= {"transform": transform} if transform else {}
        return [*ax.plot(*((x, y) if row else (y, x)), **options)]

    if not estimate.has_l50:
        transform = ax.get_yaxis_transform() if row else ax.get_xaxis_transform()
        artists += plot([0.03], "x", transform, ms=size, mew=1.8)
    else:
        low, high = estimate.ci_low, estimate.ci_high
        if estimate.verdict.startswith((">", "<")):
            low, high = estimate.l50, estimate.l50
            low, high = (low, np.inf) if estimate.verdict.startswith(">") else (0, high)
        ends = max(low, estimate.shortest / _BEYOND), min(high, estimate.longest * _BEYOND)
        artists += plot(ends, "", lw=1.8)
        for end, is_open, markers in ((ends[0], low == 0, "<v"), (ends[1], np.isinf(high), ">^")):
            if is_open:
                artists += plot([end], markers[not row], ms=size)
        if estimate.verdict != UNDETERMINED:
            fill = PAPER if estimate.dips else color
            artists += plot([estimate.mark], "o", ms=size, mfc=fill, mew=1.6)
    tag(artists, member, f"{member.label}, {estimate.task} at {estimate.length}: {estimate}")


def handles(estimates: Sequence[Estimate]) -> list[Line2D]:
    """Return an entry of a legend for each kind of mark that these estimates have."""
    entries = [mark_handle("effective context, with 95% interval", "o", ms=6)]
    if any(e.has_l50 and e.dips for e in estimates):
        entries.append(
            mark_handle("the same; recall returns farther away", "o", mfc=PAPER, mew=1.6)
        )
    if any(e.has_l50 and (e.verdict.startswith(">") or np.isinf(e.ci_high)) for e in estimates):
        entries.append(mark_handle("beyond the distances tested", ">", ms=6))
    if any(e.verdict == UNDETERMINED for e in estimates):
        entries.append(mark_handle("undetermined: interval only", "_", ms=12, mew=1.8))
    if not all(e.has_l50 for e in estimates):
        entries.append(mark_handle("not learned, or too few answers", "x", ms=6, mew=1.8))
    return entries


def draw_line(ax: Axes, points: Sequence[Point], number: int, count: int) -> list[Line2D]:
    """Draw the marks of learned estimates and the line through measured ones; return the line.

    Marks beyond the longest distance have equal heights, so line `number` of `count` is shifted
    sideways, by at most a tenth of an octave.
    """
    shift = 2 ** (0.2 * ((number + 0.5) / count - 0.5))
    known = [(x * shift, member, e) for x, member, e in points if e.has_l50]
    for x, member, estimate in known:
        draw_l50(ax, x, member, estimate, 5)
    line = [x for x, *_ in known], [estimate.l50 for *_, estimate in known]
    return ax.plot(*line, lw=1.3, **points[0][1].stroke.line)
