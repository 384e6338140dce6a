"""Perplexity beside retrieval: a context is superficial if only retrieval falls."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from ropewalk.reporting.members import Member, learned, tasks
from ropewalk.reporting.page import Item, make_figure
from ropewalk.reporting.task_view import view_of
from ropewalk.utils import figures


def by_base(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the figure, at the length at which the most members have both measurements."""
    text = next((t for t in tasks(members, "likelihood") if view_of(t).compared), "")
    names = [task for task in tasks(members) if learned(members, task)] or tasks(members)
    by_length = {
        length: [
            member
            for member in members
            if (text, length) in member.trained
            and any((task, length) in member.trained for task in names)
        ]
        for length in sorted({length for member in members for _, length in member.trained})
    }
    length = max(by_length, key=lambda length: (len(by_length[length]), length), default=0)
    if len(shown := by_length.get(length, [])) > 1:
        arguments = shown, text, names, length
        yield make_figure("Perplexity and context", "superficial", draw_superficial, *arguments)


def draw_superficial(
    members: Sequence[Member], text: str, names: Sequence[str], length: int
) -> Figure:
    """Draw a row per member: perplexity relative to the best, and accuracy of each retrieval task.

    Args:
      members: with both measurements at this length.
      text: task of the perplexity.
      names: retrieval tasks.
      length: context length of the evaluation, tokens.
    """
    words = [member.words for member in members]
    figure, axes, rows = figures.row_panels(1 + len(names), members, words)
    nats = np.array([member.trained[text, length].value for member in members])
    with np.errstate(over="ignore", invalid="ignore"):  # infinite: wrong everywhere
        ratios = np.exp(nats - np.min(nats, initial=np.inf, where=~np.isnan(nats)))
    for y, member, ratio in zip(rows, members, ratios.tolist(), strict=True):
        values = [(axes[0], ratio, f"perplexity {ratio:.2f} times the best")]
        for ax, task in zip(axes[1:], names, strict=True):
            if measured := member.trained.get((task, length)):
                values.append((ax, measured.value, f"{task} {measured.value:.2f}"))
        for ax, value, tooltip in values:
            dot = ax.plot(value, y, "o", color=member.stroke.color, ms=6, zorder=4)
            figures.tag(dot, member, f"{member.label}: {tooltip}")
    highest = max([1.5, *(1.1 * ratio for ratio in ratios if math.isfinite(ratio))])
    axes[0].set_xlim(1 - 0.05 * (highest - 1), highest)
    figures.set_xlabel(axes[0], f"perplexity / best, at {length:,} tokens")
    for ax, task in zip(axes[1:], names, strict=True):
        ax.set_xlim(-0.03, 1.05)
        figures.set_xlabel(ax, f"accuracy on {task}, mean over distances")
    recall = {
        (member.is_control, measured.value): (name, ratio)
        for member, name, ratio in zip(members, words, ratios.tolist(), strict=True)
        if (measured := member.trained.get((names[0], length))) and math.isfinite(ratio)
    }
    message = f"Perplexity beside recall at {length:,} tokens"
    if recall:
        _, value = lowest = min(recall)
        name, ratio = recall[lowest]
        message = f"{name}: {ratio:.2f} times the best perplexity, but accuracy {value:.2f}"
    figures.set_message(figure, message[0].upper() + message[1:])
    return figure
