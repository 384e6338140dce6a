"""Panels, colors, and legends of the probes' figures: one column per member, one color per head."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reporting.style import folded, handle

# Colors of heads, which color-blind readers can distinguish (Okabe and Ito).
COLORS = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"

_MAX_COLUMNS = 4


def panels(
    labels: Sequence[str], *, rows: int = 1, legend: bool = True, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure with a column of panels per member; many members fill several blocks.

    Args:
      labels: titles of the columns, one per member.
      rows: number of panels of a member, one below the other.
      legend: whether to leave space for a legend at the right.
      **options: options of `Figure.subplots`.

    Returns:
      The figure, and the panels `[members, rows]`.
    """
    blocks = -(-len(labels) // _MAX_COLUMNS)
    columns = -(-len(labels) // blocks)
    size = (1.0 + legend * 1.2 + 2.1 * columns, 0.8 + (0.3 + 2.0 * rows) * blocks)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows * blocks, columns, squeeze=False, **options)
    axes = axes.reshape(blocks, rows, columns).swapaxes(1, 2).reshape(-1, rows)
    for ax in axes[len(labels) :].ravel():
        ax.remove()
    for (top, *_), label in zip(axes, labels, strict=False):
        top.set_title(folded(label, 20), fontsize=9)
    return figure, axes[: len(labels)]


def first_column(axes: np.ndarray) -> np.ndarray:
    """Return the leftmost panels of each block, `[blocks, rows]`; only these have y labels."""
    blocks = -(-len(axes) // _MAX_COLUMNS)
    return axes[:: -(-len(axes) // blocks)]


def head_handles(shapes: Iterable[tuple[int, int]]) -> list[Line2D]:
    """Return legend entries of heads, named `layer.head` if there are several layers.

    Without any entry if there are more heads than colors. Members of different shapes have their
    heads in the same order.

    Args:
      shapes: numbers of layers and heads of each member.
    """
    largest = max(shapes, key=math.prod)
    if math.prod(largest) > len(COLORS):
        return []
    heads = zip(np.ndindex(largest), COLORS, strict=False)
    return [
        handle(f"head {head_name(largest, head)}", color=color, lw=1.8) for head, color in heads
    ]


def head_name(shape: tuple[int, int], head: tuple[int, ...]) -> str:
    """Return "layer.head", or "head" if there is a single layer."""
    return "{}.{}".format(*head) if shape[0] > 1 else str(head[1])


def draw_band(ax: Axes, x: np.ndarray, y_3: np.ndarray, color: str, **style: Any) -> None:
    """Draw a line `y_3[0]` and a band between `y_3[1]` and `y_3[2]`."""
    ax.plot(x, y_3[0], color=color, **{"lw": 1.4, **style})
    ax.fill_between(x, y_3[1], y_3[2], color=color, alpha=0.2, lw=0)
