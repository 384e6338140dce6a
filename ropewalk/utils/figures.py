"""Style of all figures: colors, line styles, panels, axes, labels, legends, and two page widths.

One code holds in all figures, on light and on dark pages:

- A series (a member of a report, a model of a study, a variant) has the color of its base and the
  line style of its number of heads, or of its window (`stroke_of`): the same in all figures,
  whatever else they show. All colors have a contrast of 3 or more on white and on dark pages. A
  series without a base is gray.
- Heads of one model have `HEADS`, colors that no base has.
- Theory and reference lines are black or gray.
- A figure's title says what it shows (`set_message`), and names stand where curves end
  (`label_ends`).

No figure is wider than `PAGE_WIDTH`. Within `phone_layout` figures are `PHONE_WIDTH` wide, and
their panels stand one below the other.
"""

import contextlib
import contextvars
import itertools
import math
import pathlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

STYLE = matplotlib.rc_params_from_file(
    pathlib.Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
# Colors of figures, and their names in reporting/templates/page.css, which defines other values for
# a dark page. Other colors, such as those of heat map cells, are the same on both pages.
INK, FAINT, GRID = STYLE["text.color"], STYLE["axes.edgecolor"], STYLE["grid.color"]
PAPER, WASH, EMPTY = "#ffffff", "#f4f5f7", "#eceef1"
NAMED = {INK: "ink", FAINT: "mark", PAPER: "paper", WASH: "wash", EMPTY: "empty", GRID: "grid"}
_BASES = {  # color map of the bases, even in log(log(base)) between these
    10: "#4b62e6",
    30: "#8f55e6",
    100: "#c944b4",
    300: "#e0455f",
    1e3: "#d9641a",
    1e4: "#b98000",
    5e5: "#76912a",
    1e8: "#2a9d72",
}
HEADS = "#0072b2", "#a08900", "#1f9fd0", "#9a6230", "#00a36c", "#0f7a66", "#6fa35a", "#6a7a88"

DASHED, DOTTED = (0, (5, 2)), (0, (1.2, 1.8))  # line styles
REFERENCE: dict[str, Any] = {"color": FAINT, "lw": 1, "ls": (0, (1, 2))}  # reference lines
CELLS = "cividis"  # of heat maps: lightness rises evenly from dark blue to yellow
SIGNED = "RdBu_r"  # of cells around 0

PAGE_WIDTH, PHONE_WIDTH = 10.0, 3.9  # inches
_is_phone = contextvars.ContextVar("is_phone", default=False)


@contextlib.contextmanager
def phone_layout() -> Iterator[None]:
    """Make the figures of this context narrow, with their panels one below the other."""
    token = _is_phone.set(True)
    try:
        yield
    finally:
        _is_phone.reset(token)


class Stroke(NamedTuple):
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
    """A member, model or variant: the same `index`, `label` and `stroke` in all figures."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def stroke(self) -> Stroke: ...  # noqa: D102


_WINDOW = (0, (6, 2, 1.5, 2))
_HEADS = {1: (0, (5, 2)), 2: (0, (1.5, 1.5)), 8: (0, (9, 3))}  # all others are solid


def stroke_of(
    base: float | None, num_heads: int | None = None, window: int | None = None
) -> Stroke:
    """Return the color of a base (None: gray), and the line style of a window or of heads."""
    color = FAINT
    if base is not None:
        place, *places = np.log(np.log10([np.clip(base, 10, 1e8), *_BASES]))
        channels = zip(*map(to_rgb, _BASES.values()), strict=True)
        color = to_hex([np.interp(place, places, channel) for channel in channels])
    return Stroke(color, _WINDOW if window else _HEADS.get(num_heads or 0, "-"))


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
    widest = PHONE_WIDTH if _is_phone.get() else PAGE_WIDTH
    return Figure(figsize=(min(width, widest), height), layout="constrained")


def grid(
    count: int, *, rows: int = 1, columns: int = 3, height: float = 3.4, **options
) -> tuple[Figure, np.ndarray]:
    """Return a figure no wider than the page, and its panels `[count, rows]`.

    A panel per item, or several of them one below the other; items fill blocks of equal length.

    Args:
      count: number of items.
      rows: number of panels of an item.
      columns: maximal number of items side by side; on a phone 1.
      height: of a panel, inches.
      **options: of `Figure.subplots`.
    """
    blocks = -(-count // (1 if _is_phone.get() else columns))
    columns = -(-count // blocks)
    figure = new_figure(5.6 + 2.2 * columns, height * rows * blocks)
    axes = figure.subplots(rows * blocks, columns, squeeze=False, **options)
    axes = axes.reshape(blocks, rows, columns).swapaxes(1, 2).reshape(-1, rows)
    for ax in axes[count:].ravel():
        ax.remove()
    for ax in axes[max(count - columns, 0) : count, -1]:  # a panel may be missing below
        ax.xaxis.set_tick_params(labelbottom=True)
    return figure, axes[:count]


def row_panels(count: int, series: Sequence[Series], names: Sequence[str]) -> tuple[Any, ...]:
    """Return a figure, `count` panels, and the y of each series, which has a row in all panels.

    Series of another color than the row above have a gap. `names` label the rows.
    """
    pairs = itertools.pairwise(item.stroke.color for item in series)
    steps = [1 + 0.5 * (color != above) for above, color in pairs]
    y = np.cumsum([0, *steps])
    figure, axes = grid(count, height=1.1 + 0.27 * y[-1], sharey=not _is_phone.get())
    for ax in axes[:, 0]:
        ax.set_yticks(y, [folded(name, _name_width()) for name in names])
        ax.set_ylim(y[-1] + 0.7, -0.7)
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
    return figure, axes[:, 0], y


def _name_width() -> int:
    return 20 if _is_phone.get() else 36  # letters


def set_message(figure: Figure, text: str) -> None:
    """Give a figure a title that says what it shows, in lines that fit."""
    letters = int(10.2 * figure.get_figwidth())
    figure.suptitle(textwrap.fill(text, letters), x=0.01, ha="left")


class End(NamedTuple):
    """The last point of a curve, and its name; `series` is what it is tagged as."""

    x: float
    y: float
    name: str
    color: str
    series: Series | None = None


def _ascending(values: np.ndarray) -> np.ndarray:
    """Return the ascending numbers with the least squared distance to `values`."""
    first, last = np.indices((len(values), len(values)))
    sums = np.concatenate([[0], np.cumsum(values)])
    means = (sums[last + 1] - sums[first]) / np.maximum(last - first + 1, 1)
    return np.array([means[: i + 1, i:].min(axis=1).max() for i in range(len(values))])


_LINE_HEIGHT = 0.155  # inches


def label_ends(ax: Axes, ends: Sequence[End]) -> None:
    """Write names right of a panel beside the ends of curves, moved apart where they are near.

    The panel's limits and scales must be final. The figure becomes higher if names need it.
    """
    points = (ax.transData + ax.transAxes.inverted()).transform([end[:2] for end in ends])
    order = np.argsort(points[:, 1], kind="stable")
    names = [folded(end.name, _name_width()) for end in ends]
    lines = np.array([names[i].count("\n") + 1 for i in order])
    figure = ax.get_figure(root=True)
    assert figure
    if (need := _LINE_HEIGHT * lines.sum() / _size(ax.yaxis)) > 1:
        figure.set_figheight(need * figure.get_figheight())
    unit = _LINE_HEIGHT / _size(ax.yaxis)
    offsets = unit * (np.cumsum(lines) - lines / 2)
    places = _ascending(points[order, 1] - offsets) + offsets
    places -= max(0, places[-1] + unit * lines[-1] / 2 - 1)
    places += max(0, unit * lines[0] / 2 - places[0])
    for i, place in zip(order, places, strict=True):
        end, leader = ends[i], {"arrowstyle": "-", "lw": 0.7, "shrinkA": 0, "shrinkB": 2}
        leader |= {"color": ends[i].color, "relpos": (0, 0.5)}
        style = {"va": "center", "fontsize": 8.5, "color": end.color, "arrowprops": leader}
        where = {"textcoords": "axes fraction", "annotation_clip": False}
        text = ax.annotate(names[i], (end.x, end.y), (1.03, place), **where, **style)
        if end.series:
            tag([text], end.series)


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
        """Return the ticks between two ends; round numbers if they have no two powers of two."""
        label = 0.12 + 0.085 * len(_format_tokens(vmax)) if self._is_x else 0.25  # inches
        self.numticks = min(max(int(self._length / label), 2), 14)
        if vmax < 4 * vmin:
            return MaxNLocator(min(self.numticks, 5), steps=[1, 2, 5, 10]).tick_values(vmin, vmax)
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


def set_xlabel(ax: Axes, text: str) -> None:
    """Set the label of a panel's x axis, in lines that fit its width."""
    ax.set_xlabel(folded(text, max(20, int(11 * _size(ax.xaxis)))))


def share_xlabel(figure: Figure, axes: np.ndarray, text: str) -> None:
    """Set the label of the x axis that the panels of a `grid` share; on a phone below the last."""
    if _is_phone.get():
        set_xlabel(axes[-1, -1], text)
    else:
        figure.supxlabel(text)


def error_bar(
    ax: Axes, x: float, y: float, ends: tuple[float, float], **style: Any
) -> list[Artist]:
    """Draw a mark at (x, y) with the interval `ends`; `style` as of `Axes.errorbar`."""
    lengths = [[max(y - ends[0], 0)], [max(ends[1] - y, 0)]]
    return ax.errorbar(x, y, lengths, **style).get_children()


def handle(label: str, **style: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], label=label, **style)


def mark_handle(label: str, marker: Any, **style: Any) -> Line2D:
    """Return an entry of a legend for marks that no line joins."""
    return handle(label, **{"marker": marker, "color": INK, "ls": "none", **style})


def add_legend(figure: Figure, handles: Sequence[Line2D], *, below: bool = False) -> None:
    """Add a legend at the right of a figure, or below it, as on a phone; none without handles."""
    if not handles:
        return
    if below or _is_phone.get():
        letters = max(len(str(item.get_label())) for item in handles)
        columns = max(1, int(13.5 * figure.get_figwidth() / (letters + 8)))
        height = 0.2 * -(-len(handles) // columns)
        figure.set_figheight(figure.get_figheight() + height)
        figure.legend(handles=handles, loc="outside lower left", ncols=columns)
        return
    num_lines = sum(str(item.get_label()).count("\n") + 1 for item in handles)
    figure.set_figheight(max(figure.get_figheight(), 0.22 * num_lines + 0.3))
    figure.legend(handles=handles, loc="outside right center")
