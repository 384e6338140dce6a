"""The mean over windows of their nats per token."""

import numpy as np

from ropewalk.evals.rows import Rows
from ropewalk.reporting.task_view import TaskView


class SlidingWindow(TaskView):
    """View of `evals.tasks.sliding_window`."""

    def columns(self, rows: Rows, trained: Rows | None) -> dict[str, float]:
        """Return YaRN's metric (its eval/perplexity.py): the mean over windows of their mean nats.

        All windows have equal weight: the first with `length` tokens and little context, later ones
        with `stride` tokens, and a last one with few tokens.
        """
        return {"window_mean_nll": float(np.mean(rows["nll"]))}
