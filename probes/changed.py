"""What changing a model does to it: how far it sees then, and what its answers cost."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from evals.estimate import effective_context
from evals.rows import Rows
from evals.score import Candidate
from probes.probe import over_documents
from probes.subject import Subject


class Effects(NamedTuple):
    """Of X changed models; `_3X` are a value and the ends of its 95% interval.

    Attributes:
      l50_3X: tokens, as `evals.estimate.effective_context` has it; NaN where nothing is learned.
      loss_3X: nats, mean over answers.
      said_X: L50 in words.
      rows: of each, what all of that was read from.
    """

    l50_3X: np.ndarray
    loss_3X: np.ndarray
    said_X: np.ndarray
    rows: list[Rows]

    @classmethod
    def of(cls, subject: Subject, candidates: Iterable[Candidate]) -> "Effects":
        """Each is asked the same documents. Errors as of `Subject.rows`."""
        # One by one: parameters of all of them together may not fit the memory.
        found = [rows for each in candidates for rows in subject.rows([each])]
        estimates = [effective_context.estimate(rows) for rows in found]
        l50 = [[each.l50, each.ci_low, each.ci_high] for each in estimates]
        loss_X3 = np.array([_loss(rows) for rows in found])
        return cls(np.array(l50).T, loss_X3.T, np.array([str(each) for each in estimates]), found)


def _loss(rows: Rows) -> np.ndarray:
    _, document_Q = np.unique(rows["document"], return_inverse=True)
    return over_documents(np.bincount(document_Q, rows["nll"]), np.bincount(document_Q))
