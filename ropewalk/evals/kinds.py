"""The four kinds of tasks: the main number of each, its name and its decimals."""

from collections.abc import Callable
from typing import NamedTuple

from ropewalk import evals
from ropewalk.evals.estimate import summaries
from ropewalk.evals.rows import Rows


class Kind(NamedTuple):
    """Summary of result rows of one task, length and variant, by `Task.kind`.

    Attributes:
      value: function that returns the main number of rows.
      name: name of that number, with its unit.
      title: title of a column with that number, or the effective context of retrieval.
      decimals: decimals of that number in a table.
    """

    value: Callable[[Rows], float]
    name: str
    title: str
    decimals: int = 3


KINDS = {
    "retrieval": Kind(
        summaries.mean_accuracy,
        "accuracy, mean over distances",
        "effective context, tokens [95% CI]",
    ),
    "score": Kind(summaries.mean_accuracy, "accuracy", "share of answers that are right"),
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
