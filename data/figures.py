"""Declarations of a task's own figures and tables, which `reporting` draws."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure with one curve per member and one column of panels per context length.

    Attributes:
      name: name of its files.
      section: heading on the page.
      alternative: text alternative for screen readers.
      caption: text below the figure.
      xlabel: label with unit.
      ylabels: labels with units, one per row of panels and curve of `Task.curves`.
      x_scale: "log2" for tokens; "log" for values, with a tick label for each.
      y_scale: "symlog" is linear below 0.01.
      mark: meaning of the diamonds.
      levels: meaning of the dotted lines.
      share: whether the y axis goes from 0 to 1.
      bars: whether intervals are bars instead of bands.
      trained: whether a line marks the trained length.
      together: whether all tasks of the class at one length share a panel.
    """

    name: str
    section: str = "Perplexity and context"
    alternative: str
    caption: str
    xlabel: str
    ylabels: tuple[str, ...]
    x_scale: Literal["log2", "log"] = "log2"
    y_scale: Literal["linear", "log2", "symlog"] = "linear"
    mark: str = ""
    levels: str = ""
    share: bool = False
    bars: bool = False
    trained: bool = False
    together: bool = False


class Mark(NamedTuple):
    """A labelled point on a curve."""

    x: float
    y: float
    text: str


class Curve(NamedTuple):
    """A member's curve in one panel, `[N]` each, with 95% intervals."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mark: Mark | None = None

    @classmethod
    def from_means(cls, x, mean, error, mark: Mark | None = None) -> "Curve":
        """Return a curve from means and standard errors."""
        x, mean, error = np.asarray(x, float), np.asarray(mean, float), np.asarray(error, float)
        return cls(x, mean, mean - 1.96 * error, mean + 1.96 * error, mark)


class Grid(NamedTuple):
    """One column of a heat map: answers at one length by position in the context, `[P]` each.

    Attributes:
      names: names of the positions.
      low, high: bounds of the positions; 0 is the start of the context, 1 its end.
      accuracy: share of exact matches; NaN without answers.
      counts: number of answers.
    """

    names: list[str]
    low: np.ndarray
    high: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
    """A table of shares per length, with one line per member and evaluated variant.

    Attributes:
      section: heading on the page.
      caption: text above the table.
      heads: heads of the columns, which `Task.share_columns` fills.
    """

    section: str
    caption: str
    heads: tuple[str, ...]


class Suggestion(NamedTuple):
    """A measurement that a page suggests if it is missing.

    Attributes:
      what: one sentence.
      shows: place on the page: `Plot.name`, `Shares.section`, or "places" (a `Grid`).
      calls: arguments of evaluate.py, one list per command.
      of_text: whether the measurement needs text.
    """

    what: str
    shows: str
    calls: Sequence[Sequence[object]]
    of_text: bool = True
