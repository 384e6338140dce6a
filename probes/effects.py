"""Effects of changing a model: effective context and loss of the changed models."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ropewalk.evals.estimate import effective_context
from ropewalk.evals.rows import Rows
from ropewalk.evals.score import Candidate
from ropewalk.probes.probe import bootstrap_mean
from ropewalk.probes.subject import Subject


class Effects(NamedTuple):
    """Effects of X changes; `_3X` are a value and the ends of its 95% interval.

    Attributes:
      l50_3X: tokens, as `evals.estimate.effective_context` has it; NaN if nothing is
        learned, and beside an interval if it is undetermined.
      loss_3X: nats, mean over answers.
      l50_text_X: L50 as text.
      rows: result rows of each changed model.
    """

    l50_3X: np.ndarray
    loss_3X: np.ndarray
    l50_text_X: np.ndarray
    rows: list[Rows]


def measure_effects(subject: Subject, candidates: Iterable[Candidate]) -> Effects:
    """Evaluate changed models on the same documents; errors as of `Subject.rows`."""
    # One by one: the parameters of all candidates together may not fit the memory.
    rows = [rows for candidate in candidates for rows in subject.rows([candidate])]
    estimates = [effective_context.estimate(candidate_rows) for candidate_rows in rows]
    l50_X3 = np.array([[e.l50, e.ci_low, e.ci_high] for e in estimates])
    loss_X3 = np.array([_mean_loss(candidate_rows) for candidate_rows in rows])
    return Effects(l50_X3.T, loss_X3.T, np.array([str(e) for e in estimates]), rows)


def _mean_loss(rows: Rows) -> np.ndarray:
    _, document_Q = np.unique(rows["document"], return_inverse=True)
    return bootstrap_mean(np.bincount(document_Q, rows["nll"]), np.bincount(document_Q))
