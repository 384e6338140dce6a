"""Perplexity beside retrieval, by base: a context is superficial where only the second falls."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

import evals
from reporting.looks import FAINT, INK
from reporting.members import Member, learned, task_order, tasks
from reporting.style import tag


def superficial_lengths(members: Sequence[Member]) -> list[int]:
    """Lengths at which two bases or more have both a likelihood of text and a retrieval task."""
    lengths = sorted({length for member in members for _, length in member.own})
    return [length for length in lengths if len(_both(members, length)) > 1]


def _text_task(members: Sequence[Member]) -> str:
    """The first task on the page that measures the likelihood of text."""
    asked = {each.task for member in members for each in member.own.values()}
    of_text = (
        name
        for name in task_order(asked)
        if evals.parse(name).kind == "likelihood" and evals.parse(name).compared
    )
    return next(of_text, "")


def _both(members: Sequence[Member], length: int) -> list[Member]:
    of_text = _text_task(members)
    return [
        member
        for member in members
        if member.base is not None
        and (of_text, length) in member.own
        and any((task, length) in member.own for task in tasks(members))
    ]


def superficial(members: Sequence[Member]) -> Figure:
    """Perplexity over the best member's (above) and retrieval (below) against base, by length."""
    lengths = superficial_lengths(members)
    figure = Figure(figsize=(min(10, 3 + 3.2 * len(lengths)), 5.4), layout="constrained")
    above, below = figure.subplots(2, len(lengths), sharex=True, sharey="row", squeeze=False)
    names = [task for task in tasks(members) if learned(members, task)] or tasks(members)
    marks = dict(zip(names, "os^DvPX*<>" * len(names), strict=False))
    of_text = _text_task(members)
    for top, bottom, length in zip(above, below, lengths, strict=True):
        shown = _both(members, length)
        best = min(member.own[of_text, length].value for member in shown)
        for trained in sorted({member.trained_length for member in shown}):
            alike = [member for member in shown if member.trained_length == trained]
            ratios = [np.exp(member.own[of_text, length].value - best) for member in alike]
            top.plot([member.base for member in alike], ratios, color=FAINT, lw=1.1, zorder=2)
            for member, ratio in zip(alike, ratios, strict=True):
                dot = top.plot(member.base, ratio, "o", color=member.look.color, ms=6)
                perplexity = np.exp(member.own[of_text, length].value)
                text = f"{member.label}: perplexity {perplexity:.2f}, {ratio:.2f} times the best"
                tag(dot, member, text)
            for task in names:
                asked = [member for member in alike if (task, length) in member.own]
                values = [member.own[task, length].value for member in asked]
                bases = [member.base for member in asked]
                bottom.plot(bases, values, color=FAINT, lw=1.1, zorder=2)
                for member, value in zip(asked, values, strict=True):
                    color = member.look.color
                    dot = bottom.plot(member.base, value, marks[task], color=color, ms=6)
                    tag(dot, member, f"{member.label}: {task} {value:.2f}")
        bases = sorted({member.base or 0.0 for member in shown})
        top.set_title(f"context of {length:,}")
        for ax in (top, bottom):
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(bases))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FixedFormatter([f"{base:,.5g}" for base in bases]))
        bottom.set_xlabel("RoPE base (log scale)")
    above[0].set_ylabel("perplexity / best")
    # At least up to twice the best, so that a difference of a few per cent looks like one.
    above[0].set_ylim(0.9, max(2.0, 1.1 * above[0].get_ylim()[1]))
    below[0].set_ylabel("accuracy, mean\nover distances")
    below[0].set_ylim(-0.03, 1.05)
    handles = [
        Line2D([], [], marker=marks[task], color=INK, ls="none", ms=6, label=task) for task in names
    ]
    figure.legend(handles=handles, loc="outside right center")
    return figure
