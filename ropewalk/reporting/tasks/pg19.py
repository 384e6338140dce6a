"""The mean over books of each book's perplexity."""

import numpy as np

from ropewalk.evals.estimate import summaries
from ropewalk.evals.rows import Rows, select
from ropewalk.reporting.task_view import TaskView


class Pg19(TaskView):
    """View of `evals.tasks.pg19`."""

    def columns(self, rows: Rows, trained: Rows | None) -> dict[str, float]:
        """Return the mean over books of each book's perplexity; hard books dominate it."""
        books = np.unique(rows["document"]).tolist()
        perplexities = [summaries.perplexity(select(rows, document=book)) for book in books]
        return {"book_perplexity": float(np.mean(perplexities))}
