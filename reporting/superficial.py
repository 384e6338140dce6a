"""Perplexity beside retrieval, by base: a context is superficial where only the second falls."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import evals
from reporting.labels import setting
from reporting.looks import FAINT, INK
from reporting.members import Member, learned, tasks
from reporting.style import handle, marked, tag


def superficial_lengths(members: Sequence[Member]) -> list[int]:
    """Lengths at which two bases or more have both a likelihood of text and a retrieval task."""
    lengths = sorted({length for member in members for _, length in member.own})
    return [length for length in lengths if len(_both(members, length)) > 1]


def _text_task(members: Sequence[Member]) -> str:
    """The first task on the page that measures the likelihood of text."""
    of_text = tasks(members, "likelihood")
    return next((name for name in of_text if evals.parse(name).compared), "")


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
        for alike in _series(shown):
            points = []
            for member in alike:
                nats = member.own[of_text, length].value
                ratio = np.exp(nats - best)
                said = f"perplexity {np.exp(nats):.2f}, {ratio:.2f} times the best"
                points.append((member, ratio, said))
            _line(top, points, "o")
            for task in names:
                asked = [(m, m.own[task, length].value) for m in alike if (task, length) in m.own]
                _line(
                    bottom, [(m, value, f"{task} {value:.2f}") for m, value in asked], marks[task]
                )
        bases = sorted({member.base or 0.0 for member in shown})
        top.set_title(f"context of {length:,}")
        for ax in (top, bottom):
            ax.set_xscale("log")
            marked(ax.xaxis, {base: f"{base:,.5g}" for base in bases}, columns=len(lengths))
        bottom.set_xlabel("RoPE base (log scale)")
    above[0].set_ylabel("perplexity / best")
    # At least up to twice the best, so that a difference of a few per cent looks like one.
    above[0].set_ylim(0.9, max(2.0, 1.1 * above[0].get_ylim()[1]))
    below[0].set_ylabel("accuracy, mean\nover distances")
    below[0].set_ylim(-0.03, 1.05)
    handles = [handle(task, marker=marks[task], color=INK, ls="none", ms=6) for task in names]
    figure.legend(handles=handles, loc="outside right center")
    return figure


def _series(members: Sequence[Member]) -> list[list[Member]]:
    """Members that differ in their variant only: what a line may join."""
    found: dict[tuple, list[Member]] = {}
    for member in members:
        fields = setting(member.config).items()
        found.setdefault(tuple(f for f in fields if f[0] != "model.rotary"), []).append(member)
    return list(found.values())


def _line(ax: Axes, points: Sequence[tuple[Member, float, str]], marker: str) -> None:
    """Values by base, joined; each with what is said where a reader points at it."""
    bases, values = [m.base or 0.0 for m, *_ in points], [value for _, value, _ in points]
    style = points[-1][0].look.linestyle if points else "-"
    ax.plot(bases, values, color=FAINT, ls=style, lw=1.1, zorder=2)
    for base, (member, value, said) in zip(bases, points, strict=True):
        dot = ax.plot(base, value, marker, color=member.look.color, ms=6)
        tag(dot, member, f"{member.label}: {said}")
