"""The four kinds of tasks: the main number of each, its name and its text."""

from collections.abc import Callable
from typing import NamedTuple

from ropewalk import evals
from ropewalk.evals.estimate import effective_context, summaries, thresholds
from ropewalk.evals.rows import Rows


class Kind(NamedTuple):
    """Summary of result rows of one task, length and variant, by `Task.kind`.

    Attributes:
      value: function that returns the main number of rows.
      name: name of that number, with its unit.
      title: title of a column with `text`.
      decimals: decimals of `text`; None: `text` is the effective context.
    """

    value: Callable[[Rows], float]
    name: str
    title: str
    decimals: int | None = 3

    def text(self, rows: Rows) -> str:
        """Return the text of a table cell."""
        if self.decimals is None:
            return str(effective_context.estimate(rows))
        return f"{self.value(rows):.{self.decimals}f}"


KINDS = {
    "retrieval": Kind(
        thresholds.mean_accuracy,
        "accuracy, mean over distances",
        "effective context, tokens [95% CI]",
        None,
    ),
    "score": Kind(thresholds.mean_accuracy, "accuracy", "share of answers that are right"),
    "accuracy": Kind(
        lambda rows: summaries.share(rows).mean,
        "share of tokens that are right",
        "share of tokens that are right",
    ),
    "likelihood": Kind(summaries.mean_nll, "nats per token", "nats per token", 4),
}


def kind_of(rows: Rows) -> Kind:
    """Return the kind of the task of `rows`."""
    return KINDS[evals.parse(str(rows["task"][0])).kind]
