"""Perplexity beside retrieval, by base: a context is superficial if only retrieval falls."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ropewalk.reporting.members import Member, learned, tasks
from ropewalk.reporting.page import Item, make_figure
from ropewalk.reporting.task_view import view_of
from ropewalk.utils import figures


def by_base(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure, if two or more bases have both measurements at one length."""
    text = next((t for t in tasks(members, "likelihood") if view_of(t).compared), "")
    shown = {}
    for length in sorted({length for member in members for _, length in member.trained}):
        shown[length] = [
            member
            for member in members
            if member.base is not None
            and (text, length) in member.trained
            and any((task, length) in member.trained for task in tasks(members))
        ]
    if shown := {length: group for length, group in shown.items() if len(group) > 1}:
        draw, arguments = draw_superficial, (members, text, shown)
        yield make_figure("Perplexity and context", "superficial", draw, *arguments)


def draw_superficial(
    members: Sequence[Member], text: str, by_length: Mapping[int, Sequence[Member]]
) -> Figure:
    """Draw perplexity relative to the best (top) and retrieval (bottom) against base, by length.

    Args:
      members: of the page.
      text: task of the perplexity.
      by_length: members with a base and both measurements at this length.
    """
    figure, axes = figures.grid(len(by_length), rows=2, height=2.7, sharex=True, sharey="row")
    names = [task for task in tasks(members) if learned(members, task)] or tasks(members)
    marks = dict(zip(names, "os^DvPX*<>" * len(names), strict=False))
    for panels, (length, shown) in zip(axes, by_length.items(), strict=True):
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
                figures.tag(dot, member, f"{member.label}: {tooltip}")
        panels[0].set_title(f"context of {length:,}")
        for ax in panels:
            ax.set_xscale("log")
            figures.label_values(
                ax.xaxis, {m.base: figures.format_value(m.base) for m in shown if m.base}
            )
    for top, bottom in axes:
        # A limit of at least 2 keeps differences of a few per cent small.
        highest = max(2.0, 1.1 * top.get_ylim()[1])
        top.set_ylim(1 - 0.1 * (highest - 1), highest)
        bottom.set_ylim(-0.03, 1.05)
    figures.label_rows(axes, ("perplexity / best", "accuracy, mean\nover distances"))
    figure.supxlabel("RoPE base (log scale)")
    figures.series_legend(
        figure,
        [member for member in members if any(member in shown for shown in by_length.values())],
        [figures.mark_handle(task, marks[task], ms=6) for task in names if names[1:]],
        marker="o",
    )
    return figure
