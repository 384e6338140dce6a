"""Perplexity beside retrieval, by base: a context is superficial if only retrieval falls."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.labels import setting
from reporting.members import Member, learned, tasks
from reporting.task_view import view_of
from utils.figures import (
    FAINT,
    grid,
    label_rows,
    label_values,
    mark_handle,
    series_legend,
    tag,
)


def superficial_lengths(members: Sequence[Member]) -> list[int]:
    """Return lengths at which two or more bases have both a text and a retrieval measurement."""
    lengths = sorted({length for member in members for _, length in member.trained})
    return [length for length in lengths if len(_select(members, length)) > 1]


def _text_task(members: Sequence[Member]) -> str:
    """Return the first comparable task of text on the page; empty if there is none."""
    names = tasks(members, "likelihood")
    return next((name for name in names if view_of(name).compared), "")


def _select(members: Sequence[Member], length: int) -> list[Member]:
    """Return members with a base and both measurements at this length."""
    text = _text_task(members)
    return [
        member
        for member in members
        if member.base is not None
        and (text, length) in member.trained
        and any((task, length) in member.trained for task in tasks(members))
    ]


def draw_superficial(members: Sequence[Member]) -> Figure:
    """Draw perplexity relative to the best (top) and retrieval (bottom) against base, by length."""
    lengths = superficial_lengths(members)
    figure, axes = grid(len(lengths), rows=2, height=2.7, sharex=True, sharey="row")
    names = [task for task in tasks(members) if learned(members, task)] or tasks(members)
    marks = dict(zip(names, "os^DvPX*<>" * len(names), strict=False))
    text = _text_task(members)
    for (top, bottom), length in zip(axes, lengths, strict=True):
        shown = _select(members, length)
        nats = {member: member.trained[text, length].value for member in shown}
        best = min(nats.values())
        for series in _group_series(shown):
            points = []
            for member in series:
                ratio = np.exp(nats[member] - best)
                tooltip = f"perplexity {np.exp(nats[member]):.2f}, {ratio:.2f} times the best"
                points.append((member, ratio, tooltip))
            _draw_line(top, points, "o")
            for task in names:
                key = task, length
                values = [(m, m.trained[key].value) for m in series if key in m.trained]
                points = [(m, value, f"{task} {value:.2f}") for m, value in values]
                _draw_line(bottom, points, marks[task])
        bases = sorted({member.base or 0.0 for member in shown})
        top.set_title(f"context of {length:,}")
        for ax in (top, bottom):
            ax.set_xscale("log")
            label_values(ax.xaxis, {base: f"{base:,.5g}" for base in bases})
    for top, bottom in axes:
        # A limit of at least 2 keeps differences of a few per cent small.
        top.set_ylim(0.9, max(2.0, 1.1 * top.get_ylim()[1]))
        bottom.set_ylim(-0.03, 1.05)
    label_rows(axes, ("perplexity / best", "accuracy, mean\nover distances"))
    figure.supxlabel("RoPE base (log scale)")
    series_legend(
        figure,
        [member for member in members if any(member in _select(members, n) for n in lengths)],
        [mark_handle(task, marks[task], ms=6) for task in names if names[1:]],
        marker="o",
    )
    return figure


def _group_series(members: Sequence[Member]) -> list[list[Member]]:
    """Return groups of members that differ only in their variant, which lines may join."""
    groups: dict[tuple, list[Member]] = {}
    for member in members:
        fields = setting(member.config).items()
        groups.setdefault(tuple(f for f in fields if f[0] != "model.rotary"), []).append(member)
    return list(groups.values())


def _draw_line(ax: Axes, points: Sequence[tuple[Member, float, str]], marker: str) -> None:
    """Draw (member, value, tooltip) by base, joined."""
    bases, values = [m.base or 0.0 for m, *_ in points], [value for _, value, _ in points]
    style = points[-1][0].look.linestyle if points else "-"
    ax.plot(bases, values, color=FAINT, ls=style, lw=1.1, zorder=2)
    for base, (member, value, tooltip) in zip(bases, points, strict=True):
        dot = ax.plot(base, value, marker, color=member.look.color, ms=6)
        tag(dot, member, f"{member.label}: {tooltip}")
