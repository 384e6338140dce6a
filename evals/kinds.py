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
      text: as text; of retrieval, effective context instead.
      title: of the text.
    """

    value: Callable[[Rows], float]
    name: str
    text: Callable[[Rows], str]
    title: str


def _share(column: str) -> Callable[[Rows], float]:
    return lambda rows: float(rows[column].mean())


KINDS = {
    "retrieval": Kind(
        thresholds.mean_accuracy,
        "accuracy, mean over distances",
        lambda rows: str(effective_context.estimate(rows)),
        "effective context, tokens [95% CI]",
    ),
    "score": Kind(
        _share("exact_match"),
        "accuracy",
        lambda rows: f"{rows['exact_match'].mean():.3f}",
        "share of answers that are right",
    ),
    "accuracy": Kind(
        lambda rows: summaries.share(rows).mean,
        "share of tokens that are right",
        lambda rows: f"{rows['first_token_correct'].mean():.3f}",
        "share of tokens that are right",
    ),
    "likelihood": Kind(
        summaries.mean_nll,
        "nats per token",
        lambda rows: f"{summaries.mean_nll(rows):.4f}",
        "nats per token",
    ),
}


def of(rows: Rows) -> Kind:
    """That of the task whose rows these are."""
    return KINDS[evals.parse(str(rows["task"][0])).kind]
