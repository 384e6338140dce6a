"""Style of all figures: colors, line styles, axes, panels, legends and SVG tags.

A member has the same color and line style in every figure: the color of its base, and the line
style of its number of heads. Colors are of increasing lightness in the order of the bases (plasma,
without its palest end), so that the order survives color blindness and black-and-white prints.
Controls are grey. Only forecasts have hollow marks.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.text import Annotation
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

if TYPE_CHECKING:
    from reporting.members import Member

STYLE = matplotlib.rc_params_from_file(
    Path(__file__).with_name("templates") / "figures.mplstyle", use_default_template=False
)
# Colors of figures, and their names in templates/page.css, which defines darker values for a dark
# page. Other colors, such as those of heat map cells, are the same on both pages.
INK, FAINT, GRID = STYLE["text.color"], STYLE["axes.edgecolor"], STYLE["grid.color"]
PAPER, WASH, EMPTY = "#ffffff", "#f4f5f7", "#eceef1"
NAMED = {INK: "ink", FAINT: "mark", PAPER: "paper", WASH: "wash", EMPTY: "empty", GRID: "grid"}
# Text in a dark or bright cell of a heat map, on both pages.
ON_DARK, ON_BRIGHT = "#fefefe", "#1c2027"

_CONTROL_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))


class Look(NamedTuple):
    """Color and line style of a member.

    Attributes:
      color, dark: `#rrggbb` on a white and on a dark page.
      linestyle: matplotlib's.
    """

    color: str
    dark: str
    linestyle: tuple | str

    @property
    def dashed(self) -> bool:
        """True if the line is not solid."""
        return self.linestyle != "-"


def make_looks(bases: Sequence[float | None], heads: Sequence[int]) -> list[Look]:
    """Return the looks of members with these bases (None: a control) and numbers of heads.

    The color is that of the base. The line style is that of the number of heads; members with
    equal bases and heads have different ones.
    """
    counts = sorted({n for base, n in zip(bases, heads, strict=True) if base is not None})
    ordered = sorted({base for base in bases if base is not None})
    # On a dark page, the color range starts where colors are bright enough.
    light, dark = (_colors(len(ordered), *ends) for ends in ((0.02, 0.78), (0.4, 0.95)))
    looks = []
    pairs = list(zip(bases, heads, strict=True))
    for index, (base, num_heads) in enumerate(pairs):
        repetition = bases[:index].count(base)
        if base is None:
            color, dark_color, styles = FAINT, "var(--mark)", _CONTROL_DASHES
        else:
            repetition = pairs[:index].count((base, num_heads)) * len(counts)
            repetition += counts.index(num_heads)
            order = ordered.index(base)
            color, dark_color, styles = light[order], dark[order], ("-", *_CONTROL_DASHES)
        looks.append(Look(color, dark_color, styles[repetition % len(styles)]))
    return looks


def _colors(count: int, first: float, last: float) -> list[str]:
    plasma = matplotlib.colormaps["plasma"]
    return [to_hex(color) for color in plasma(np.linspace(first, last, max(count, 2)))]


DOTTED: dict[str, Any] = {"color": FAINT, "lw": 1, "ls": (0, (1, 2))}  # reference lines
DASHES = (0, (4, 3))


def tag(artists: Iterable[Artist], member: "Member", text: str = "") -> None:
    """Mark artists as a member's, so that the page can highlight the member in every figure.

    `text` is the tooltip of the artists.
    """
    for artist in artists:
        artist.set_gid(f"member-{member.index}" + (f" title:{text}" if text else ""))


def note(ax: Axes, text: str, xy: tuple, offset: tuple, **options: Any) -> Annotation:
    """Write text at an offset in points from `xy`; `pad` and `fc` give it an opaque background."""
    if "fc" in options:
        options["bbox"] = {"fc": options.pop("fc"), "ec": "none", "pad": options.pop("pad")}
    return ax.annotate(text, xy, offset, textcoords="offset points", **options)


def token_axis(axis: Axis, *, num_ticks: int = 14) -> None:
    """Give an axis a log2 scale, with labels in tokens at powers of two (of four if many)."""
    set_scale = axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale
    set_scale("log", base=2)
    axis.set_major_locator(LogLocator(base=2, numticks=num_ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.5g}"))


def label_lengths(
    axis: Axis, lengths: Iterable[float], notes: Mapping[float, str] | None = None
) -> None:
    """Label a log axis at these lengths, with `notes` below them; crowded labels are omitted."""
    notes = notes or {}
    label_values(axis, {n: f"{n:,.5g}" + (f"\n{notes[n]}" if n in notes else "") for n in lengths})


def label_values(axis: Axis, names: Mapping[float, str], *, columns: int = 3) -> None:
    """Label a log axis at these values; crowded labels are omitted.

    `columns` is the number of panels across the page.
    """
    values = sorted(names)
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    positions, texts, free = np.log2(values), [], -np.inf
    for position, value in zip(positions, values, strict=True):
        # Half of the label's width, as a share of the axis.
        half = columns * (0.005 + 0.006 * max(map(len, names[value].split("\n"))))
        half *= positions[-1] - positions[0]
        texts.append(names[value] if position - half >= free else "")
        free = position + half if texts[-1] else free
    axis.set_major_formatter(FixedFormatter(texts))


def grid(count: int, *, columns: int = 3, height: float = 3.4, **options) -> tuple[Figure, list]:
    """Return a figure of `count` panels in rows of equal length, no wider than the page."""
    rows = -(-count // columns)
    columns = -(-count // rows)
    figure = Figure(figsize=(min(10, 5.6 + 2.2 * columns), height * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **options).ravel().tolist()
    for ax in panels[count:]:
        ax.remove()
    return figure, panels[:count]


def folded(expression: str, width: int = 28) -> str:
    """Return an expression broken into lines after punctuation and prefixes of long names."""
    lines = [""]
    for part in re.split(r"(?<=[(,/])|(?<=dynamic_)|(?<=position_)", expression):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def error_bar(
    ax: Axes, x: float, y: float, ends: tuple[float, float], **style: Any
) -> list[Artist]:
    """Draw a mark at (x, y) with the interval `ends`; `style` as of `Axes.errorbar`."""
    lengths = [[max(y - ends[0], 0)], [max(ends[1] - y, 0)]]
    return ax.errorbar(x, y, lengths, **style).get_children()


_UP = MarkerStyle(r"$\uparrow$")
ARROW = _UP.get_path().transformed(_UP.get_transform())  # marker of a legend


def handle(label: str, **style: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], label=label, **style)


def member_legend(
    figure: Figure, members: "Sequence[Member]", more: Sequence[Line2D] = (), marker: str = ""
) -> None:
    """Add a legend of the members, then `more`, at the right; `marker` replaces the lines."""
    handles = []
    for member in members:
        line = {"ls": "none", "marker": marker} if marker else {"ls": member.look.linestyle}
        handles.append(handle(member.label, color=member.look.color, lw=2.2, **line))
    legend = figure.legend(handles=[*handles, *more], loc="outside right center")
    for member, *parts in zip(members, legend.get_lines(), legend.get_texts(), strict=False):
        tag(parts, member)
