"""How members look: the same colour, dashes and name in every figure.

Members with a base are coloured in its order (plasma, cut before it pales on white: its lightness
rises steadily, so the order survives colour-blindness and a photocopier). Controls are grey.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from reporting.members import Member

STYLE = matplotlib.rc_params_from_file(
    Path(__file__).with_name("templates") / "figures.mplstyle", use_default_template=False
)
# What figures are drawn with, and the name of each in templates/page.css, which has darker ones for
# a dark page. Colours that are not here, those of cells, stay what they are.
INK, FAINT, _GRID = STYLE["text.color"], STYLE["axes.edgecolor"], STYLE["grid.color"]
PAPER, WASH, EMPTY = "#ffffff", "#f4f5f7", "#eceef1"
_NAMED = {INK: "ink", FAINT: "mark", PAPER: "paper", WASH: "wash", EMPTY: "empty", _GRID: "grid"}
# Text in a cell, whatever the page: on a dark one, on a bright one.
ON_DARK, ON_BRIGHT = "#fefefe", "#1c2027"

_CONTROL_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """How a member is drawn in every figure.

    Attributes:
      color, dark: as `#rrggbb`, on white and on a dark page.
      linestyle: matplotlib's.
    """

    color: str
    dark: str
    linestyle: tuple | str

    @property
    def dashed(self) -> bool:
        """Whether its line is not a whole one."""
        return self.linestyle != "-"


def looks(members: Sequence[Member]) -> dict[int, Look]:
    """The look of each member, by its index."""
    bases = sorted({member.base for member in members if member.base is not None})
    # On a dark page the colours begin where they are bright enough to be seen.
    light, dark = (_colors(len(bases), *ends) for ends in ((0.02, 0.78), (0.4, 0.95)))
    drawn: dict[float | None, int] = {}
    result = {}
    for member in members:
        # Members that share a base, or have none, are told apart by their dashes.
        again = drawn[member.base] = drawn.get(member.base, -1) + 1
        if member.base is None:
            color, dark_color, styles = FAINT, "var(--mark)", _CONTROL_DASHES
        else:
            place = bases.index(member.base)
            color, dark_color, styles = light[place], dark[place], ("-", *_CONTROL_DASHES)
        result[member.index] = Look(
            color=color, dark=dark_color, linestyle=styles[again % len(styles)]
        )
    return result


def _colors(count: int, first: float, last: float) -> list[str]:
    plasma = matplotlib.colormaps["plasma"]
    return [to_hex(color) for color in plasma(np.linspace(first, last, max(count, 2)))]


def for_page(svg: str, members: Sequence[Member]) -> str:
    """A figure whose colours are the page's, so that they change with it."""
    names = _NAMED | {
        look.color: f"member-{index}"
        for index, look in looks(members).items()
        if look.color not in _NAMED
    }
    return re.sub(
        "#[0-9a-f]{6}",
        lambda found: f"var(--{names[found[0]]})" if found[0] in names else found[0],
        svg,
    )


def tag(artists: Iterable[Artist], member: Member, role: str = "") -> None:
    """Names artists in the SVG, so that the page can light up one member in every figure."""
    for artist in artists:
        artist.set_gid(f"member-{member.index} {role}".strip())


def hint(artists: Iterable[Artist], text: str, member: Member | None = None) -> None:
    """Text that the page shows where a reader points at the artists."""
    name = "plain" if member is None else f"member-{member.index}"
    for artist in artists:
        artist.set_gid(f"{name} title:{text}")


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


def member_legend(
    figure: Figure,
    members: Sequence[Member],
    more: Sequence[Line2D] = (),
    look: Mapping[int, Look] | None = None,
    marker: str = "",
) -> None:
    """Names the members, then `more`, at the right of the figure.

    `look` is that of all members where these are only some of them; `marker` stands in for lines.
    """
    look = look or looks(members)
    handles = [
        Line2D(
            [],
            [],
            color=look[member.index].color,
            ls="none" if marker else look[member.index].linestyle,
            marker=marker,
            lw=2.2,
            label=member.label,
        )
        for member in members
    ]
    legend = figure.legend(handles=[*handles, *more], loc="outside right center")
    lines, texts = legend.get_lines(), legend.get_texts()
    for member, line, text in zip(members, lines, texts, strict=False):
        tag([line, text], member)
