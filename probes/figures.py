"""Colors and legend entries of heads, and lines with bands, in the probes' figures."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from utils.figures import HEADS, handle


def head_handles(shapes: Iterable[tuple[int, int]]) -> list[Line2D]:
    """Return legend entries of heads, named `layer.head` if there are several layers.

    Without any entry if there are more heads than colors. Members of different shapes have their
    heads in the same order.

    Args:
      shapes: numbers of layers and heads of each member.
    """
    largest = max(shapes, key=math.prod)
    if math.prod(largest) > len(HEADS):
        return []
    heads = zip(np.ndindex(largest), HEADS, strict=False)
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
