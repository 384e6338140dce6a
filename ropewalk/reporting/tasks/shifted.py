"""Verdict whether the loss of a text depends on its position."""

import numpy as np

from ropewalk.evals.rows import Rows
from ropewalk.reporting.page import NONE
from ropewalk.reporting.task_view import TaskView


class Shifted(TaskView):
    """View of `evals.tasks.shifted`."""

    def columns(self, rows: Rows, trained: Rows | None) -> dict[str, str]:
        """Return the largest difference between two positions of a text, nats per token."""
        if not np.array_equal(rows["query"], np.resize(np.arange(3), len(rows["query"]))):
            return {"positions": NONE}  # rows of one position
        change = np.ptp(rows["nll"].reshape(-1, 3), axis=1).max()
        if np.isnan(change):
            return {"positions": NONE}
        # Rounding of float32, in nats per token of a text.
        return {"positions": "equal within 1e-5" if change <= 1e-5 else f"differs by {change:.2g}"}
