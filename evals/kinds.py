"""What the four kinds of tasks measure: the one number of each, its text and its name."""

from collections.abc import Callable
from typing import NamedTuple

import evals
from evals.estimate import effective_context, summaries, thresholds
from evals.rows import Rows


class Kind(NamedTuple):
    """What `Task.kind` means for result rows of one task, length and variant.

    Attributes:
      value: the one number.
      name: of that number, with its unit.
      title: of its text.
      decimals: of its text; None: the text is effective context instead.
    """

    value: Callable[[Rows], float]
    name: str
    title: str
    decimals: int | None = 3

    def text(self, rows: Rows) -> str:
        """What a table says."""
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
    """That of the task whose rows these are."""
    return KINDS[evals.parse(str(rows["task"][0])).kind]
