"""Perplexity of held-out text by position in the document."""

import numpy as np

from ropewalk.evals.estimate import summaries
from ropewalk.evals.rows import Rows, select
from ropewalk.reporting.task_view import Curve, Plot, TaskView


class Perplexity(TaskView):
    """View of `evals.tasks.perplexity`."""

    order = 3
    plot = Plot(
        name="perplexity_by_position",
        alternative="Perplexity of held-out text against position in the document.",
        caption="Perplexity of held-out text by position in the document, with 95% intervals over "
        "documents, without position 1, before which the model has read nothing. Men et al. (arXiv "
        "2405.14591) found it nearly blind to the base where retrieval is not.",
        xlabel="position in the document (tokens, log scale)",
        ylabels=("perplexity of held-out text (log scale)",),
        y_scale="log2",
        trained=True,
    )

    def curves(self, trained: Rows, rows: Rows) -> list[Curve]:
        """Return perplexity by position, over all documents and seeds."""
        trained = {name: column[trained["distance"] > 1] for name, column in trained.items()}
        if not len(trained["distance"]):
            return []
        positions = np.unique(trained["distance"])
        by_position = (select(trained, distance=position) for position in positions)
        means = np.array(list(map(summaries.mean_with_error, by_position)))
        nll, error, num_units = means.T
        curve = Curve.from_means(positions, nll, error, num_units=num_units)
        with np.errstate(over="ignore"):
            y, low, high = np.exp([curve.y, curve.low, curve.high])
        # No axis has infinity; the table says it, or that there is no number.
        drawn = np.isfinite(y) & ~np.isinf(high)
        return [Curve(curve.x[drawn], y[drawn], low[drawn], high[drawn])] if drawn.any() else []
