"""Figures of what is inside."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.estimate.bins import fine_bin_number
from probes.by_distance import ByDistance
from probes.questions import Questions
from reporting.looks import FAINT, INK
from reporting.style import folded, handle, token_axis
from theory import capability

# Of heads: told apart by colour-blind readers too (Okabe and Ito), and by their numbers.
_COLORS = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"
_FEWEST = 30  # questions a dot stands for
_DASHES = (0, (4, 3))


def matching_keys(found: Mapping[str, tuple[ByDistance, Questions, np.ndarray]]) -> Figure:
    """By member: how far a matching key stands out in each head, and what is answered right.

    Above, d′ of every head by distance, and what half-right answers need;
    below, the accuracy each head would have by itself, and the model's own.

    Args:
      found: by the member's name `by_distance`, its questions, and which were answered right.
    """
    columns = len(found)
    figure = Figure(figsize=(min(14, 1.6 + 3.0 * columns), 5.6), layout="constrained")
    axes = figure.subplots(2, columns, squeeze=False, sharex="col", sharey="row")
    most_heads = 0
    for column, (name, (by, questions, right_Q)) in enumerate(found.items()):
        above, below = axes[:, column]
        above.set_title(folded(name), fontsize=9)
        heads = [(layer, head) for layer in range(len(by.zero_LN)) for head in range(by.num_heads)]
        most_heads = max(most_heads, len(heads))
        for (layer, head), color in zip(heads, _COLORS * len(heads), strict=False):
            _head(above, by, layer, head, color)
            below.plot(by.distances_M, by.accuracy[layer, head], color=color, lw=1.2)
        needed = capability.needed(max(1, round(by.num_others)))
        above.axhline(needed, color=INK, lw=1, ls=_DASHES)
        above.axhline(0, color=FAINT, lw=0.8)
        _measured(below, questions.distances, right_Q)
        below.set_xscale("log", base=2)
        token_axis(below.xaxis, num_ticks=8)
        below.set_ylim(-0.03, 1.03)
    axes[0, 0].set_ylabel("d′ of the matching key")
    axes[1, 0].set_ylabel("accuracy")
    figure.supxlabel("distance to the matching key (tokens, log scale)", fontsize=10)
    heads = [
        handle(f"head {head}", color=color, lw=1.8)
        for head, color in zip(range(most_heads), _COLORS, strict=False)
    ]
    more = [
        handle("what half-right needs", color=INK, lw=1, ls=_DASHES),
        handle("no advantage left", marker="o", mfc="white", mec=INK, ls="none"),
        handle("answered right", marker=".", color=INK, ls="none"),
    ]
    figure.legend(handles=[*heads, *more], loc="outside right center")
    return figure


def _head(ax: Axes, by: ByDistance, layer: int, head: int, color: str) -> None:
    ax.plot(by.distances_M, by.d_prime[layer, head], color=color, lw=1.4)
    zero = by.zero_LN[layer, head]
    if 0 < zero < math.inf:
        ax.plot(zero, 0, "o", mfc="white", mec=color, zorder=5)


def _measured(ax: Axes, distance_Q: np.ndarray, right_Q: np.ndarray) -> None:
    """Dots of an eighth of an octave, or as much wider as it takes to have enough questions."""
    order = np.argsort(distance_Q)
    bins = np.flatnonzero(np.diff(fine_bin_number(distance_Q[order]))) + 1
    start = 0
    for stop in [*bins.tolist(), len(order)]:
        if stop - start >= _FEWEST:
            chosen = order[start:stop]
            middle = np.exp(np.log(distance_Q[chosen]).mean())
            ax.plot(middle, right_Q[chosen].mean(), ".", color=INK, ms=5, zorder=4)
            start = stop
