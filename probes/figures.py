"""What figures of probes share: a column a member, a colour a head."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reporting.style import folded, handle

# Of heads: told apart by colour-blind readers too (Okabe and Ito), and by their numbers.
COLORS = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"
DASHES = (0, (4, 3))

_MOST_COLUMNS = 4


def panels(
    labels: Sequence[str], *, rows: int = 1, legend: bool = True, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of a column a member, of several rows each; many members stand in several blocks.

    Args:
      labels: of the members, which are written above.
      rows: panels of a member, one below the other.
      legend: whether there will be one at the right.
      **options: of `Figure.subplots`.

    Returns:
      The figure, and the panels `[members, rows]`.
    """
    blocks = -(-len(labels) // _MOST_COLUMNS)
    columns = -(-len(labels) // blocks)
    size = (1.0 + legend * 1.2 + 2.1 * columns, 0.8 + (0.3 + 2.0 * rows) * blocks)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows * blocks, columns, squeeze=False, **options)
    axes = axes.reshape(blocks, rows, columns).swapaxes(1, 2).reshape(-1, rows)
    for ax in axes[len(labels) :].ravel():
        ax.remove()
    for (first, *_), label in zip(axes, labels, strict=False):
        first.set_title(folded(label, 20), fontsize=9)
    return figure, axes[: len(labels)]


def first_column(axes: np.ndarray) -> np.ndarray:
    """Of `panels` those that stand at the left, `[blocks, rows]`: they name their axes."""
    blocks = -(-len(axes) // _MOST_COLUMNS)
    return axes[:: -(-len(axes) // blocks)]


def head_handles(found_LN: Iterable[np.ndarray]) -> list[Line2D]:
    """Legend entries of heads in `COLORS`, `layer.head` where there are several layers.

    None where colours come twice. Members of other shapes have their heads in the same order.

    Args:
      found_LN: of each member an array with a number for each head.
    """
    largest_LN = max(found_LN, key=np.size)
    if largest_LN.size > len(COLORS):
        return []
    several = len(largest_LN) > 1
    return [
        handle(f"head {layer}.{head}" if several else f"head {head}", color=color, lw=1.8)
        for (layer, head), color in zip(np.ndindex(largest_LN.shape), COLORS, strict=False)
    ]
