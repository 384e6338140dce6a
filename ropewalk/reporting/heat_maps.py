"""Heat maps of accuracy by context length and depth."""

from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ropewalk.reporting.members import Member, describe_range, tasks
from ropewalk.reporting.page import Item, make_figure
from ropewalk.reporting.task_view import view_of
from ropewalk.utils.figures import (
    CELLS,
    EMPTY,
    INK,
    PAPER,
    folded,
    grid,
    set_message,
    share_xlabel,
    tag,
)

MAP = matplotlib.colormaps[CELLS]


def depth_tasks(members: Sequence[Member]) -> list[str]:
    """Return the retrieval tasks whose rows record the depth of the answer in the context."""
    return [
        name
        for name in tasks(members)
        if any(view_of(name).grid(m.rows) for x in members for m in x.select_task(name)[:1])
    ]


def by_depth(members: Sequence[Member]) -> Iterator[Item]:
    """Yield the heat map of each of `depth_tasks`."""
    for task in depth_tasks(members):
        title = "By context length and depth"
        yield make_figure(title, "heat_map", draw_lengths, members, task, name=task)


def draw_lengths(members: Sequence[Member], task: str) -> Figure:
    """Draw accuracy by context length and depth, a panel per member.

    A column is a context length; a line separates those beyond the trained length.
    """
    shown = [(member, results) for member in members if (results := member.select_task(task))]
    figure, axes = grid(len(shown), height=2.9, columns=4, sharey=True)
    panels = axes[:, 0].tolist()
    for ax, (member, results) in zip(panels, shown, strict=True):
        for x, measured in enumerate(results):
            column = f"{member.label} at {measured.length:,}"
            cells = view_of(task).grid(measured.rows)
            for name, low, high, accuracy, count in zip(*(cells or ()), strict=True):
                color = MAP(accuracy) if count else EMPTY
                patch = Rectangle((x, low), 1, high - low, fc=color, ec=PAPER, lw=0.6)
                text = f"{accuracy:.2f} of {count}" if count else "not tested"
                tag([ax.add_patch(patch)], member, f"{column}, {name}: {text}")
        lengths = [measured.length for measured in results]
        ax.set_xlim(0, len(lengths))
        ax.set_xticks(np.arange(len(lengths)) + 0.5, [f"{length:,}" for length in lengths])
        within = sum(length <= member.trained_length for length in lengths)
        if 0 < within < len(lengths):
            ax.axvline(within, color=INK, lw=1.4)
        ax.grid(visible=False)
        ax.set_title(folded(member.words, 22), fontsize=9)
        ax.set_yticks([0, 0.5, 1], ["start", "middle", "end"])
    panels[0].set_ylim(1, 0)
    share_xlabel(figure, axes, "context length (tokens)")
    figure.supylabel("depth of the answer")
    colors, label = ScalarMappable(Normalize(0, 1), MAP), "accuracy (exact match)"
    figure.colorbar(colors, ax=panels, label=label, shrink=0.8, aspect=30)
    means = {member.words: results[-1].value for member, results in shown}
    set_message(figure, describe_range(f"Mean accuracy on {task}, longest context", means))
    return figure
