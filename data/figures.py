"""What a task has to show besides the general figures and tables, as data.

Whoever draws (`reporting`) knows no task by name: it draws what is declared here.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure with a curve a member, in panels side by side: one a context length.

    Attributes:
      name: of its files.
      section: heading of the page under which it stands.
      alternative: what it shows, for who cannot see it.
      caption: under it.
      xlabel: with its unit.
      ylabels: of the panels that stand below each other, with units; `Task.curves` gives as many.
      x_scale: "log2" of tokens; "log" of values, each named at the axis.
      y_scale: "symlog" is linear below 0.01.
      mark: what the diamonds are.
      levels: what the dotted lines are.
      share: the y axis goes from 0 to 1.
      bars: intervals are bars, not bands.
      trained: a line at the trained length.
      together: all tasks of the class at one length are one panel.
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
    """A place on a curve and what is said of it."""

    x: float
    y: float
    text: str


class Curve(NamedTuple):
    """What a member's answers draw in one panel: `[N]` each, with 95% intervals."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mark: Mark | None = None

    @classmethod
    def from_means(cls, x, mean, error, mark: Mark | None = None) -> "Curve":
        """From means and their standard errors."""
        x, mean, error = (np.asarray(each, float) for each in (x, mean, error))
        return cls(x, mean, mean - 1.96 * error, mean + 1.96 * error, mark)


class Grid(NamedTuple):
    """One column of a heat map: answers at one length, by place in the context, `[P]` each.

    Attributes:
      names: of the places.
      low, high: where they begin and end; 0 is the start of the context, 1 its end.
      accuracy: share of exact matches; NaN where nothing was asked.
      counts: answers asked.
    """

    names: list[str]
    low: np.ndarray
    high: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
    """A table of shares, one line a member and variant evaluated with, one table a length.

    Attributes:
      section: heading of the page under which it stands.
      caption: above it.
      heads: of its columns, which `Task.share_columns` fills.
    """

    section: str
    caption: str
    heads: tuple[str, ...]


class Suggestion(NamedTuple):
    """What a page suggests to measure where nobody has.

    Attributes:
      what: one sentence.
      shows: where it would be shown: `Plot.name`, `Shares.section`, or "places" (a `Grid`).
      calls: arguments of evaluate.py, one list a command.
      of_text: whether it needs text.
    """

    what: str
    shows: str
    calls: Sequence[Sequence[object]]
    of_text: bool = True
