"""What figures share: their axes, panels and legends, and the names of what is drawn in them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from reporting.looks import NAMED
from reporting.members import Member


def for_page(svg: str, members: Sequence[Member]) -> str:
    """A figure whose colours are the page's, so that they change with it."""
    names = {member.look.color: f"member-{member.index}" for member in members} | NAMED
    return re.sub(
        "#[0-9a-f]{6}",
        lambda found: f"var(--{names[found[0]]})" if found[0] in names else found[0],
        svg,
    )


def tag(artists: Iterable[Artist], member: Member, text: str = "") -> None:
    """Names artists in the SVG, so that the page can light up one member in every figure.

    `text` is what it shows where a reader points at them.
    """
    for artist in artists:
        artist.set_gid(f"member-{member.index}" + (f" title:{text}" if text else ""))


def token_axis(axis: Axis, *, num_ticks: int = 14) -> None:
    """Marks a log2 axis at powers of two (of four where there are many), as plain numbers."""
    axis.set_major_locator(LogLocator(base=2, numticks=num_ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))


def marked_lengths(
    axis: Axis, lengths: Iterable[float], notes: Mapping[float, str] | None = None
) -> None:
    """Marks a log axis at these lengths, written as plain numbers; crowded ones go unnamed.

    `notes` are written below the numbers of their lengths.
    """
    notes = notes or {}
    marked(axis, {n: f"{n:,.5g}" + (f"\n{notes[n]}" if n in notes else "") for n in lengths})


def marked(axis: Axis, names: Mapping[float, str], *, columns: int = 3) -> None:
    """Marks a log axis at these values, with their names; crowded ones go unnamed.

    `columns` is how many such panels fill the width of a page.
    """
    values = sorted(names)
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    places, shown, free = np.log2(values), [], -np.inf
    for place, value in zip(places, values, strict=True):
        # Half of a name, as a share of the axis.
        half = columns * (0.005 + 0.006 * max(map(len, names[value].split("\n"))))
        half *= places[-1] - places[0]
        shown.append(names[value] if place - half >= free else "")
        free = place + half if shown[-1] else free
    axis.set_major_formatter(FixedFormatter(shown))


def grid(count: int, *, columns: int = 3, height: float = 3.4, **options) -> tuple[Figure, list]:
    """A figure of `count` panels in even rows, each row no wider than the page."""
    rows = -(-count // columns)
    columns = -(-count // rows)
    figure = Figure(figsize=(min(10, 5.6 + 2.2 * columns), height * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **options).ravel().tolist()
    for ax in panels[count:]:
        ax.remove()
    return figure, panels[:count]


def folded(expression: str, width: int = 28) -> str:
    """A long expression on several lines, cut after signs and the first words of long names."""
    lines = [""]
    for part in re.split(r"(?<=[(,=/])|(?<=dynamic_)|(?<=position_)", expression):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


# An arrow up, as a marker in a legend.
_UP = MarkerStyle(r"$\uparrow$")
ARROW = _UP.get_path().transformed(_UP.get_transform())


def handle(label: str, **style: Any) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], label=label, **style)


def member_legend(
    figure: Figure, members: Sequence[Member], more: Sequence[Line2D] = (), marker: str = ""
) -> None:
    """Names the members, then `more`, at the right of the figure; `marker` stands in for lines."""
    handles = []
    for member in members:
        line = {"ls": "none", "marker": marker} if marker else {"ls": member.look.linestyle}
        handles.append(handle(member.label, color=member.look.color, lw=2.2, **line))
    legend = figure.legend(handles=[*handles, *more], loc="outside right center")
    for member, *parts in zip(members, legend.get_lines(), legend.get_texts(), strict=False):
        tag(parts, member)
