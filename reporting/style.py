"""How members look: the same colour, dashes and name in every figure.

Members with a base are coloured in its order (plasma, cut before it pales on white: its lightness
rises steadily, so the order survives colour-blindness and a photocopier). Controls are grey.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reporting.members import Member

INK, FAINT = "#1c2026", "#6a717c"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e8eaee",
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "savefig.dpi": 200,
    "svg.hashsalt": "ropewalk",  # the same input gives the same bytes
}

_CONTROL_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """How a member is drawn in every figure, as matplotlib's color and linestyle."""

    color: tuple | str
    linestyle: tuple | str


def looks(members: Sequence[Member]) -> dict[int, Look]:
    """The look of each member, by its index."""
    bases = sorted({member.base for member in members if member.base is not None})
    colors = matplotlib.colormaps["plasma"](np.linspace(0.02, 0.78, max(len(bases), 2)))
    drawn: dict[float | None, int] = {}
    result = {}
    for member in members:
        # Members that share a base, or have none, are told apart by their dashes.
        again = drawn[member.base] = drawn.get(member.base, -1) + 1
        if member.base is None:
            result[member.index] = Look(
                color=FAINT, linestyle=_CONTROL_DASHES[again % len(_CONTROL_DASHES)]
            )
        else:
            result[member.index] = Look(
                color=tuple(colors[bases.index(member.base)]),
                linestyle=("-", *_CONTROL_DASHES)[again % (1 + len(_CONTROL_DASHES))],
            )
    return result


def tag(artists: Iterable[Artist], member: Member, role: str = "") -> None:
    """Names artists in the SVG, so that the page can light up one member in every figure."""
    for artist in artists:
        artist.set_gid(f"member-{member.index} {role}".strip())


def token_axis(axis: Axis) -> None:
    """Marks a log2 axis at powers of two, written as plain numbers."""
    axis.set_major_locator(LogLocator(base=2, numticks=14))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))


def member_legend(figure: Figure, members: Sequence[Member], more: Sequence[Line2D] = ()) -> None:
    """Names the members, then `more`, at the right of the figure."""
    handles = [
        Line2D([], [], color=look.color, ls=look.linestyle, lw=2.2, label=member.label)
        for member, look in zip(members, looks(members).values(), strict=True)
    ]
    legend = figure.legend(handles=[*handles, *more], loc="outside right center")
    lines, texts = legend.get_lines(), legend.get_texts()
    for member, line, text in zip(members, lines, texts, strict=False):
        tag([line, text], member)
