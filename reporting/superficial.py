"""Perplexity beside retrieval, by base: a context is superficial if only retrieval falls."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ropewalk.reporting.members import Member, learned, tasks
from ropewalk.reporting.task_view import view_of
from ropewalk.utils.figures import (
    format_value,
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
    for panels, length in zip(axes, lengths, strict=True):
        shown = _select(members, length)
        nats = [member.trained[text, length].value for member in shown]
        with np.errstate(over="ignore"):  # infinite: a model that is wrong everywhere
            ratios = np.exp(nats - np.min(nats, initial=np.inf, where=~np.isnan(nats)))
        for member, ratio in zip(shown, ratios.tolist(), strict=True):
            points = [(panels[0], "o", ratio, f"perplexity {ratio:.2f} times the best")]
            for task in (task for task in names if (task, length) in member.trained):
                value = member.trained[task, length].value
                points.append((panels[1], marks[task], value, f"{task} {value:.2f}"))
            for ax, marker, y, tooltip in points:
                dot = ax.plot(member.base or 0, y, marker, color=member.look.color, ms=6)
                tag(dot, member, f"{member.label}: {tooltip}")
        panels[0].set_title(f"context of {length:,}")
        for ax in panels:
            ax.set_xscale("log")
            label_values(ax.xaxis, {m.base: format_value(m.base) for m in shown if m.base})
    for top, bottom in axes:
        # A limit of at least 2 keeps differences of a few per cent small.
        highest = max(2.0, 1.1 * top.get_ylim()[1])
        top.set_ylim(1 - 0.1 * (highest - 1), highest)
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
