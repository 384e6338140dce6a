"""Kit of all figures: style, colors, line styles, panels, axes, legends, and page widths.

One code holds in all figures, on light and on dark pages:

- A series (a member of a report, a model of a study, a variant) has the color of its base, the same
  in all figures, and the line style of its number of heads. Colors become lighter in the order of
  the bases, so that the order survives color blindness and black-and-white prints; all have a
  contrast of 3 or more on white and on dark pages. A series without a base, such as a control, is
  gray.
- Heads of one model have `HEADS`, colors that no base has.
- Theory and reference lines are black or gray.

No figure is wider than `PAGE_WIDTH`; on a narrow screen a page lets it scroll.
"""

import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.text import Annotation
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

STYLE = matplotlib.rc_params_from_file(
    pathlib.Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
# Colors of figures, and their names in reporting/templates/page.css, which defines other values for
# a dark page. Other colors, such as those of heat map cells, are the same on both pages.
INK, FAINT, GRID = STYLE["text.color"], STYLE["axes.edgecolor"], STYLE["grid.color"]
PAPER, WASH, EMPTY = "#ffffff", "#f4f5f7", "#eceef1"
NAMED = {INK: "ink", FAINT: "mark", PAPER: "paper", WASH: "wash", EMPTY: "empty", GRID: "grid"}
_BASES = LinearSegmentedColormap.from_list(
    "bases", ("#4b5bd6", "#8f4fd6", "#cf3f9a", "#e25a33", "#cb8500")
)
HEADS = "#0072b2", "#a08900", "#1f9fd0", "#9a6230", "#00a36c", "#0f7a66", "#6fa35a", "#6a7a88"

DASHED, DOTTED = (0, (5, 2)), (0, (1.2, 1.8))  # line styles
REFERENCE: dict[str, Any] = {"color": FAINT, "lw": 1, "ls": (0, (1, 2))}  # reference lines
_CONTROL_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))

PAGE_WIDTH = 10.0  # inches


class Look(NamedTuple):
    """Color and line style of a series, as of matplotlib."""

    color: str
    linestyle: tuple | str

    @property
    def dash_array(self) -> str:
        """The line style as SVG's `stroke-dasharray`, for lines three units wide."""
        dashes = () if isinstance(self.linestyle, str) else self.linestyle[1]
        return " ".join(f"{3 * length:g}" for length in dashes) or "none"

    @property
    def line(self) -> dict[str, Any]:
        """Options of a line."""
        return {"color": self.color, "ls": self.linestyle}


class Series(Protocol):
    """A member, model or variant: the same `index`, `label` and `look` in all figures of a page."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def look(self) -> Look: ...  # noqa: D102


def make_looks(
    bases: Sequence[float | None], heads: Sequence[int], *, spread: bool = False
) -> list[Look]:
    """Return the looks of series with these bases (None: a control) and numbers of heads.

    The color is that of the base. The line style is that of the number of heads; series with equal
    heads and nearly equal colors have different ones. With `spread`, the colors are those of the
    ranks of the bases: for a figure that nobody compares with another report.
    """
    ordered = sorted({base for base in bases if base is not None})
    counts = sorted({n for base, n in zip(bases, heads, strict=True) if base is not None})
    looks, drawn = [], []
    for base, num_heads in zip(bases, heads, strict=True):
        if base is None:
            repetition, color, styles = bases[: len(looks)].count(None), FAINT, _CONTROL_DASHES
        else:
            rank = ordered.index(base) / max(1, len(ordered) - 1)
            place = rank if spread else _place(base)
            alike = [n == num_heads and abs(place - other) < _ALIKE for other, n in drawn]
            repetition = sum(alike) * len(counts) + counts.index(num_heads)
            color, styles = to_hex(_BASES(place)), ("-", *_CONTROL_DASHES)
            drawn.append((place, num_heads))
        looks.append(Look(color, styles[repetition % len(styles)]))
    return looks


_ALIKE = 0.05  # colors nearer than this share of the color map are hard to tell apart


def _place(base: float) -> float:
    """Return the place of a base in the color map: 0 for 10 and below, 1 for 1e8 and above."""
    return float(np.clip(np.log(np.log10(max(base, 10))) / np.log(8), 0, 1))


def tag(artists: Iterable[Artist], series: Series, text: str = "") -> None:
    """Mark artists as a series', so that the page can highlight the series in every figure.

    `text` is the tooltip of the artists.
    """
    for artist in artists:
        artist.set_gid(f"member-{series.index}" + (f" title:{text}" if text else ""))


def note(ax: Axes, text: str, xy: tuple, offset: tuple, **options: Any) -> Annotation:
    """Write text at an offset in points from `xy`; `pad` and `fc` give it an opaque background."""
    if "fc" in options:
        options["bbox"] = {"fc": options.pop("fc"), "ec": "none", "pad": options.pop("pad")}
    return ax.annotate(text, xy, offset, textcoords="offset points", **options)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, but no wider than the page."""
    return Figure(figsize=(min(width, PAGE_WIDTH), height), layout="constrained")


def grid(
    count: int, *, rows: int = 1, columns: int = 3, height: float = 3.4, **options
) -> tuple[Figure, np.ndarray]:
    """Return a figure no wider than the page, and its panels `[count, rows]`.

    A panel per item, or several of them one below the other; items fill blocks of equal length.

    Args:
      count: number of items.
      rows: number of panels of an item.
      columns: maximal number of items side by side.
      height: of a panel, inches.
      **options: of `Figure.subplots`.
    """
    blocks = -(-count // columns)
    columns = -(-count // blocks)
    figure = new_figure(5.6 + 2.2 * columns, height * rows * blocks)
    axes = figure.subplots(rows * blocks, columns, squeeze=False, **options)
    axes = axes.reshape(blocks, rows, columns).swapaxes(1, 2).reshape(-1, rows)
    for ax in axes[count:].ravel():
        ax.remove()
    for ax in axes[max(count - columns, 0) : count, -1]:  # a panel may be missing below
        ax.xaxis.set_tick_params(labelbottom=True)
    return figure, axes[:count]


def label_rows(axes: np.ndarray, labels: Sequence[str]) -> None:
    """Label the y axes at the left of a `grid`: one label per row of panels."""
    for panels in axes:
        for ax, label in zip(panels, labels, strict=True):
            spec = ax.get_subplotspec()
            if spec is None or spec.is_first_col():
                ax.set_ylabel(label)


def _size(axis: Axis) -> float:
    """Return the approximate length of an axis in inches, before the layout."""
    ax = axis.axes
    figure, box = ax.get_figure(root=True), ax.get_position()
    assert figure
    if axis is ax.xaxis:
        return box.width * figure.get_figwidth()
    return box.height * figure.get_figheight()


def token_axis(axis: Axis) -> None:
    """Give an axis a log2 scale, with labels in tokens at powers of two, of four, ... that fit."""
    (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log", base=2)
    axis.set_major_locator(_TokenLocator(axis))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _format_tokens(value)))


def _format_tokens(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.5g}"


class _TokenLocator(LogLocator):
    """Ticks at powers of two, as many as have labels that fit."""

    def __init__(self, axis: Axis):
        super().__init__(base=2)
        self._is_x, self._length = axis is axis.axes.xaxis, _size(axis)

    def tick_values(self, vmin: float, vmax: float):
        """Return the ticks between two ends."""
        label = 0.12 + 0.085 * len(_format_tokens(vmax)) if self._is_x else 0.25  # inches
        self.numticks = min(max(int(self._length / label), 2), 14)
        return super().tick_values(vmin, vmax)


def power_axis(axis: Axis) -> None:
    """Give an axis a log scale, with labels at powers of ten."""
    (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log")
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))


def format_value(value: float) -> str:
    """Return 10000 as 10,000, and 2e6 as 2×10⁶."""
    if 1e-3 < value < 1e5:
        return f"{value:,.7g}"
    exponent = math.floor(math.log10(value))
    factor = f"{value / 10**exponent:.3g}"
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    return power if factor == "1" else f"{factor}×{power}"


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def label_lengths(
    axis: Axis, lengths: Iterable[float], notes: Mapping[float, str] | None = None
) -> None:
    """Label a log axis at these lengths, with `notes` below them; crowded labels are omitted."""
    notes = notes or {}
    label_values(axis, {n: f"{n:,.5g}" + (f"\n{notes[n]}" if n in notes else "") for n in lengths})


def label_values(axis: Axis, names: Mapping[float, str]) -> None:
    """Label a log axis at these values; crowded labels are omitted."""
    values = sorted(names)
    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())
    positions, texts, free = np.log2(values), [], -np.inf
    span = max(positions[-1] - positions[0], 1e-9)
    for position, value in zip(positions, values, strict=True):
        letters = max(map(len, names[value].split("\n")))
        half = span * (0.05 + 0.048 * letters) / _size(axis)
        texts.append(names[value] if position - half >= free else "")
        free = position + half if texts[-1] else free
    axis.set_major_formatter(FixedFormatter(texts))


def folded(text: str, width: int = 28) -> str:
    """Return text in lines: broken after spaces, punctuation, and prefixes of long names."""
    lines = [""]
    for part in re.split(r"(?<=[,/ ])|(?<=[^ ]\()|(?<=dynamic_)|(?<=position_)", text):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def set_title(ax: Axes, text: str) -> None:
    """Set the title of a panel, in lines that fit its width."""
    width = max(12, int(10.5 * _size(ax.xaxis)))
    ax.set_title("\n".join(folded(line, width) for line in text.split("\n")))


def error_bar(
    ax: Axes, x: float, y: float, ends: tuple[float, float], **style: Any
) -> list[Artist]:
    """Draw a mark at (x, y) with the interval `ends`; `style` as of `Axes.errorbar`."""
    lengths = [[max(y - ends[0], 0)], [max(ends[1] - y, 0)]]
    return ax.errorbar(x, y, lengths, **style).get_children()


_UP = MarkerStyle(r"$\uparrow$")
ARROW = _UP.get_path().transformed(_UP.get_transform())  # markers of a legend
_BAR = Path([(-0.7, -0.2), (-0.7, 0.2), (0.7, 0.2), (0.7, -0.2), (-0.7, -0.2)], closed=True)
CROSSED = Path.make_compound_path(Path.unit_circle(), _BAR)


def handle(label: str, **style: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], label=label, **style)


def mark_handle(label: str, marker: Any, **style: Any) -> Line2D:
    """Return an entry of a legend for marks that no line joins."""
    return handle(label, **{"marker": marker, "color": INK, "ls": "none", **style})


def add_legend(figure: Figure, handles: Sequence[Line2D], **options: Any) -> None:
    """Add a legend at the right, in a figure that is high enough; none without handles.

    `options` as of `Figure.legend`.
    """
    if handles:
        num_lines = sum(str(item.get_label()).count("\n") + 1 for item in handles)
        figure.set_figheight(max(figure.get_figheight(), 0.22 * num_lines + 0.3))
        figure.legend(handles=handles, loc="outside right center", **options)


def series_legend(
    figure: Figure, series: Sequence[Series], more: Sequence[Line2D] = (), marker: str = ""
) -> None:
    """Add a legend of the series, then `more`; their points have a `marker`."""
    handles = []
    for item in series:
        style = {**item.look.line, "lw": 2.2, "marker": marker}
        handles.append(handle(folded(item.label, 40), **style))
    add_legend(figure, [*handles, *more])
    for legend in figure.legends:
        for item, *parts in zip(series, legend.get_lines(), legend.get_texts(), strict=False):
            tag(parts, item)
