"""Presentation of tasks on a page: columns, figures, and tables.

`TaskView` has the defaults. A file in `reporting.tasks` with the task's name replaces some of them.
"""

import functools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

import ropewalk.reporting.tasks
from ropewalk import evals
from ropewalk.evals.estimate.statistics import t_quantile
from ropewalk.evals.rows import Rows
from ropewalk.utils import plugins


class Plot(NamedTuple):
    """A figure with one curve per member and one column of panels per context length.

    Attributes:
      name: name of its files.
      alternative: text alternative for screen readers.
      caption: text below the figure.
      xlabel: label with unit.
      ylabels: labels with units, one per row of panels and curve of `TaskView.curves`.
      section: heading on the page.
      x_scale: "log2" for tokens; "log" for values, with a tick label for each.
      y_scale: "symlog" is linear below 0.01.
      mark: meaning of the diamonds.
      levels: meaning of the dotted lines.
      theory: whether a dashed line in its color marks the theory length of each member.
      share: whether the y axis goes from 0 to 1.
      bars: whether intervals are bars instead of bands.
      trained: whether a line marks the trained length.
      together: whether all tasks of the class at one length share a panel.
    """

    name: str
    alternative: str
    caption: str
    xlabel: str
    ylabels: tuple[str, ...]
    section: str = "Perplexity and context"
    x_scale: Literal["log2", "log"] = "log2"
    y_scale: Literal["linear", "log2", "symlog"] = "linear"
    mark: str = ""
    levels: str = ""
    theory: bool = False
    share: bool = False
    bars: bool = False
    trained: bool = False
    together: bool = False


class Mark(NamedTuple):
    """A labeled point on a curve."""

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
    def from_means(
        cls, x, mean, error, mark: Mark | None = None, *, num_units: Any = math.inf
    ) -> "Curve":
        """Return a curve from means and standard errors, with Student's intervals.

        `num_units` is the number of independent units of each error, such as documents.
        """
        x, mean, error = np.asarray(x, float), np.asarray(mean, float), np.asarray(error, float)
        half = t_quantile(num_units) * error
        return cls(x, mean, mean - half, mean + half, mark)


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


# Section, name of the table within it, its caption, and its lines: member index, cells by head.
TaskTable: TypeAlias = tuple[str, str, str, list[tuple[int, dict[str, str]]]]


class TaskView:
    """Presentation of one task; a subclass replaces the defaults below.

    Attributes:
      order: sort key of tasks on a page; the first retrieval task is the main one.
      compared: whether general figures and tables compare lengths and variants; a task whose
        documents differ by length has its own figures instead.
      plot: figure with the curves of `curves`.
      task: the task with its parameters (`data.task.Task`).
    """

    order: ClassVar[int] = 9
    compared: ClassVar[bool] = True
    plot: ClassVar[Plot | None] = None

    def __init__(self, task: Any):
        self.task = task

    def columns(self, rows: Rows, trained: Rows | None) -> Mapping[str, float | str]:
        """Return the task's own numbers or verdicts: columns of `results.csv` and of tables.

        Args:
          rows: rows of one length and one evaluated variant.
          trained: rows of the trained variant, if it was evaluated.
        """
        return {}

    def curves(self, trained: Rows, rows: Rows) -> Sequence[Curve]:
        """Return one member's curves at one length, one per `plot.ylabels`, or nothing.

        Args:
          trained: rows of the trained variant.
          rows: rows of all variants.
        """
        return ()

    def grid(self, rows: Rows) -> Grid | None:
        """Return accuracy at one length by position in the context; None: only by distance."""
        return None

    @classmethod
    def tables(cls, members: Sequence[Any]) -> Iterator[TaskTable]:
        """Yield tables of all parameters of the task, from `reporting.members`."""
        yield from ()


@functools.cache
def all_views() -> Mapping[str, type[TaskView]]:
    """Return the views in `reporting.tasks` by the name of the task."""
    return plugins.classes_in(ropewalk.reporting.tasks, TaskView)


@functools.cache
def view_of(expression: str) -> TaskView:
    """Return the view of a task; a user's file may define the view of its task."""
    task = evals.parse(expression)
    values = vars(sys.modules[type(task).__module__]).values()
    views = [v for v in values if isinstance(v, type) and issubclass(v, TaskView)]
    in_file = next((view for view in views if view is not TaskView), TaskView)
    return all_views().get(plugins.name_of(type(task)), in_file)(task)
