"""The base class of probes, and how their numbers are written and drawn."""

import abc
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ropewalk import evals
from ropewalk.evals.estimate.summaries import over_seeds
from ropewalk.reporting.labels import as_words
from ropewalk.utils.figures import (
    HEADS,
    INK,
    Series,
    add_legend,
    grid,
    handle,
    label_rows,
    set_message,
    set_title,
    share_xlabel,
    tag,
)
from ropewalk.utils.files import write_atomically
from ropewalk.utils.messages import rounded
from ropewalk.utils.plugins import name_of

if TYPE_CHECKING:
    from ropewalk.probes.subject import Subject

P = TypeVar("P", bound="Probe")

_NONE = "none"  # an infinite number
NOT_MEASURED = "not measured"  # a number of no questions, keys or queries


def head_handles(shapes: Iterable[tuple[int, int]]) -> list[Line2D]:
    """Return legend entries of heads, named `layer.head` if there are several layers.

    Of layers, if there are more heads than colors; none if there are more layers too, or if that is
    so in some members only. Members of different shapes have their heads in the same order.

    Args:
      shapes: numbers of layers and heads of each member.
    """
    shapes = list(shapes)
    largest = max(shapes, key=math.prod)
    names = [f"head {head_name(largest, head)}" for head in np.ndindex(largest)]
    if len(names) > len(HEADS):
        names = [f"layer {layer}" for layer in range(largest[0])]
    if len(names) > len(HEADS) or len({math.prod(shape) > len(HEADS) for shape in shapes}) > 1:
        return []
    colors = zip(names, HEADS, strict=False)
    return [handle(name, color=color, lw=1.8) for name, color in colors]


def head_name(shape: tuple[int, int], head: tuple[int, ...]) -> str:
    """Return "layer.head", or "head" if there is a single layer."""
    return "{}.{}".format(*head) if shape[0] > 1 else str(head[1])


def draw_band(ax: Axes, x: np.ndarray, y_3: np.ndarray, color: str, **style: Any) -> None:
    """Draw a line `y_3[0]` and a band between `y_3[1]` and `y_3[2]`."""
    ax.plot(x, y_3[0], color=color, **{"lw": 1.4, **style})
    ax.fill_between(x, y_3[1], y_3[2], color=color, alpha=0.2, lw=0)


def draw_points(
    ax: Axes, x_X: np.ndarray, y_3X: np.ndarray, color: str, marker: str = "o", size: float = 5
) -> None:
    """Draw values with their 95% intervals: without a value a line, without both a cross below."""
    ax.plot(x_X, y_3X[0], marker, color=color, ms=size, zorder=4)
    ax.vlines(x_X, y_3X[1], y_3X[2], color=color, lw=1.2)
    lost_X = x_X[np.isnan(y_3X[:2]).all(axis=0)]
    bottom_X = np.full(len(lost_X), 0.03)
    ax.plot(lost_X, bottom_X, "x", color=color, ms=size, transform=ax.get_xaxis_transform())


class Number(NamedTuple):
    """One number of a run, from 0 to `largest`.

    NaN is no value, which is written as `missing`. The 95% interval over documents is NaN if there
    is none. `head` is the name of the head that attains the number, "" if it is not that of one.
    """

    value: float
    low: float = float("nan")
    high: float = float("nan")
    largest: float = float("inf")
    head: str = ""
    missing: str = NOT_MEASURED


class Probe(abc.ABC):
    """Measurements of one run at one checkpoint. Each file of `probes.analyses` has a subclass.

    Its attributes are arrays and numbers, which its docstring lists with their units; the first
    line of the docstring is the probe's help.

    Attributes:
      title: heading of the probe's section on the page.
      caption: text below its figure.
      by_default: whether the probe runs if the command line names none; it must take seconds.
      order: sort key of the section on the page; equal ones are sorted by name.
      sentences: by the name of a number, what it says of a run; "{head}" is its head, "{value}" the
        number. After a bar, what it says if it is infinite.
      y_labels: labels of the panels of a member, from top to bottom.
      x_label: label below the figure; "" if the panels have labels of their own.
      sharey: option of `Figure.subplots`; panels with one label below them share the x axis.
      references: entries of the legend.
      color_scale: colors of cells and their label, for a color bar.
      arrays: the measurements by name.
    """

    title: ClassVar[str]
    caption: ClassVar[str]
    by_default: ClassVar[bool] = False
    order: ClassVar[int] = 1
    sentences: ClassVar[Mapping[str, str]] = {}
    y_labels: ClassVar[Sequence[str]]
    x_label: ClassVar[str] = ""
    sharey: ClassVar[bool | str] = False
    references: ClassVar[Sequence[Line2D]] = ()
    color_scale: ClassVar[tuple[ScalarMappable, str] | None] = None

    def __init__(self, **arrays: Any):
        self.arrays = arrays
        vars(self).update(arrays)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    @abc.abstractmethod
    def measure(cls: type[P], subject: "Subject") -> P:
        """Measure a run. Raises ValueError if the probe does not apply to it."""

    @abc.abstractmethod
    def numbers(self) -> dict[str, Number]:
        """Return the numbers that compare runs, by name and unit."""

    @classmethod
    def say(cls, name: str, seeds: Sequence[Number], head: str = "") -> str:
        """Return what a number of one or several seeds says of a run, and of a head with a name."""
        finite, _, infinite = cls.sentences.get(name, name + " is {value}").partition("|")
        head = f"head {head}" if head else "the best head"
        value = format_number(seeds)
        text = infinite if infinite and value == _NONE else finite
        return text.format(value=value, head=head)

    def lines(self) -> list[dict[str, str]]:
        """Return the lines of a table, for example one per head: cells by column heading."""
        return []

    @abc.abstractmethod
    def draw(self, axes: Sequence[Axes], color: str) -> None:
        """Draw the measurements into the panels of a member, whose color is `color`."""

    @classmethod
    def legend(cls: type[P], members: Sequence[P]) -> list[Line2D]:
        """Return the entries of the legend. `members` has the first seed of each member."""
        return list(cls.references)

    @classmethod
    def plot(
        cls: type[P], results: Mapping[str, Sequence[P]], series: Mapping[str, Series] | None = None
    ) -> Figure:
        """Return a figure with a column of panels for each member.

        Args:
          results: measurements of the seeds of each member, by the member's label.
          series: members of a page by label, whose colors and line styles mark the columns.
        """
        options = {"sharex": bool(cls.x_label), "sharey": cls.sharey}
        rows = len(cls.y_labels)
        figure, axes = grid(
            len(results), rows=rows, columns=4, height=2.1 if rows > 1 else 3, **options
        )
        for panels, (label, seeds) in zip(axes, results.items(), strict=True):
            member = (series or {}).get(label)
            # Heads of different seeds have no common order.
            seeds[0].draw(panels, member.stroke.color if member else INK)
            set_title(panels[0], as_words(label))
            if member:
                edge = panels[0].spines["top"]  # the member's line, below the title
                edge.set(visible=True, lw=2.5, **member.stroke.line)
                tag([edge], member)
        label_rows(axes, cls.y_labels)
        set_message(figure, re.sub(r" \[.*?\]", "", next(list_findings({cls: results}))))
        if cls.x_label:
            share_xlabel(figure, axes, cls.x_label)
        if cls.color_scale:
            cells, label = cls.color_scale
            beside = axes[:, -1].tolist()
            figure.colorbar(cells, ax=beside, label=label, extend="both", aspect=30)
        add_legend(figure, cls.legend([seeds[0] for seeds in results.values()]))
        return figure

    @classmethod
    def name(cls) -> str:
        """Return the name of the probe's file, which is its name on the command line."""
        return name_of(cls)

    def save(self, run: Path, task: str = "kv", **more: Any) -> Path:
        """Write the arrays, and `more`, to probes/NAME.npz of a run directory.

        Of documents of another task than kv, to probes/TASK-NAME.npz. No command reads them.
        """
        prefix = "" if task == "kv" else f"{type(evals.parse(task)).__name__.lower()}-"
        path = run / "probes" / f"{prefix}{self.name()}.npz"
        path.parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, **self.arrays, **more)
        write_atomically(path, buffer.getvalue())
        return path


class HeadProbe(Probe):
    """Probe of heads: a line of the table, a color and an entry of the legend for each.

    At least one of its arrays has a name with `_LN`, and so the shape `[L, N, ...]`.
    """

    @classmethod
    def from_layers(cls: type[P], layers: Sequence[Mapping[str, np.ndarray]], **arrays: Any) -> P:
        """Return a probe with the arrays of all layers, stacked along a new first axis."""
        stacked = {name: np.stack([fields[name] for fields in layers]) for name in layers[0]}
        return cls(**arrays, **stacked)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of layers and heads."""
        return next(x.shape[:2] for name, x in self.arrays.items() if "_LN" in name)

    @property
    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of all heads, in order."""
        return list(np.ndindex(self.shape))

    @property
    def colors(self) -> list[tuple[tuple[int, int], str]]:
        """((layer, head), color) of all heads.

        If they are many, heads of a layer share theirs; if layers are many, all share one.
        """
        keys = (
            self.heads if len(self.heads) <= len(HEADS) else [(layer, 0) for layer, _ in self.heads]
        )
        distinct = list(dict.fromkeys(keys))
        colors = HEADS if len(distinct) <= len(HEADS) else HEADS[:1] * len(distinct)
        color_of = dict(zip(distinct, colors, strict=False))
        return [(head, color_of[key]) for head, key in zip(self.heads, keys, strict=True)]

    def draw_curves(self, ax: Axes, x: np.ndarray, y: np.ndarray, **style: Any) -> None:
        """Draw a curve per head in its color, `y` `[L, N, X]`; `[3, L, N, X]` has intervals."""
        for head, color in self.colors:
            if y.ndim == 4:
                draw_band(ax, x, y[:, *head], color, **style)
            else:
                ax.plot(x, y[head], color=color, **{"lw": 1.4, **style})

    def highest(self, score_3LN: np.ndarray, largest: float = math.inf) -> Number:
        """Return the highest score of all heads, and its head; NaN is lowest."""
        if np.isnan(score_3LN[0]).all():
            return Number(math.nan, largest=largest)
        head = self.heads[np.nanargmax(score_3LN[0])]
        value, low, high = score_3LN[:, *head]
        return Number(value, low, high, largest, head_name(self.shape, head))

    @abc.abstractmethod
    def line(self, head: tuple[int, int]) -> dict[str, str]:
        """Return the cells of a (layer, head) by column heading."""

    def lines(self) -> list[dict[str, str]]:
        """Return a line per head."""
        names = [{"layer": str(layer), "head": str(head)} for layer, head in self.heads]
        return [name | self.line(head) for name, head in zip(names, self.heads, strict=True)]

    @classmethod
    def legend(cls: type[P], members: Sequence[P]) -> list[Line2D]:
        """Return the entries of heads and references."""
        return [*head_handles(member.shape for member in members), *cls.references]


# Results of a probe: measurements of each member's seeds, by the member's label.
ByLabel: TypeAlias = Mapping[str, Sequence[Probe]]


def list_findings(results: Mapping[type[Probe], ByLabel]) -> Iterator[str]:
    """Yield a sentence per number: its lowest and highest member, and members without it.

    A member lacks the number if one of its seeds does.
    """
    for probe, by_label in results.items():
        for name in next(iter(by_label.values()))[0].numbers():
            numbers = {
                label: [seed.numbers()[name] for seed in seeds] for label, seeds in by_label.items()
            }
            means = {
                label: np.mean([number.value for number in seeds])
                for label, seeds in numbers.items()
            }
            known = [label for label, mean in means.items() if not np.isnan(mean)]
            # Of equal means, `min` and `max` return the same.
            ends = list(
                dict.fromkeys(end(known, key=means.__getitem__) for end in (min, max) if known)
            )
            texts = []
            for label in ends:
                # Heads of different seeds, or of several members, have no common order.
                whose, head = as_words(label), "" if numbers[label][1:] else numbers[label][0].head
                if len(ends) == 1 < len(known):
                    number = f"{len(known)} of {len(means)}" if len(known) < len(means) else "all"
                    whose, head = f"{number} members", ""
                texts.append(f"with {whose}, {probe.say(name, numbers[label], head)}")
            rest: dict[str, list[str]] = {}
            for label in (label for label in means if label not in known):
                rest.setdefault(format_number(numbers[label]), []).append(as_words(label))
            texts += [
                f"{name}: {text} with {' and '.join(labels)}" for text, labels in rest.items()
            ]
            sentence = "; ".join(texts)
            yield sentence[0].upper() + sentence[1:]


def format_number(seeds: Sequence[Number]) -> str:
    """Return a number of one or several seeds as text, with its 95% interval.

    The interval of one seed is the one over documents; of several seeds, Student's over seeds.
    """
    values = [number.value for number in seeds]
    if len(seeds) == 1:
        value, low, high = seeds[0][:3]
    elif np.isnan(values).all():
        return seeds[0].missing
    elif np.isfinite(values).all():
        value, low, high = np.clip(over_seeds(np.array(values)), 0, seeds[0].largest)
    else:  # numbers and inf have no mean
        return " / ".join(_format_value(value, seeds[0].missing) for value in values)
    if math.isnan(low) or low == value == high:
        return _format_value(value, seeds[0].missing)
    end = "∞" if math.isinf(high) else rounded(high)
    if math.isinf(value) and low > 0:
        return f"> {rounded(low)}"
    text = rounded(value) if math.isfinite(value) else "undetermined"
    return f"{text} [{rounded(low)}, {end}]"


def _format_value(value: float, missing: str) -> str:
    if math.isnan(value):
        return missing
    return _NONE if math.isinf(value) else rounded(value)
