"""What changing a model does to it: how far it sees then, and what its answers cost."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evals.estimate import effective_context
from evals.rows import Rows
from probes.probe import over_documents


class Effects(NamedTuple):
    """Of X changed models; `_3X` are a value and the ends of its 95% interval.

    Attributes:
      l50_3X: tokens, as `evals.estimate.effective_context` has it; NaN where nothing is learned.
      loss_3X: nats, mean over answers.
      said_X: L50 in words.
    """

    l50_3X: np.ndarray
    loss_3X: np.ndarray
    said_X: np.ndarray

    @classmethod
    def of(cls, found: Sequence[Rows]) -> "Effects":
        """Of each model's result rows, as `probes.subject.Subject.rows` gives them."""
        l50, loss, said = [], [], []
        for rows in found:
            estimate = effective_context.estimate(rows)
            l50.append([estimate.l50, estimate.ci_low, estimate.ci_high])
            said.append(str(estimate))
            _, document_Q = np.unique(rows["document"], return_inverse=True)
            count_B = np.bincount(document_Q)
            loss.append(over_documents(np.bincount(document_Q, rows["nll"]), count_B))
        return cls(np.array(l50).T, np.array(loss).T, np.array(said))
