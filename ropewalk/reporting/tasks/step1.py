"""The first loss of other variants above that of the trained one."""

import numpy as np

from ropewalk.evals.estimate import summaries
from ropewalk.evals.rows import Rows, select
from ropewalk.reporting.task_view import Curve, Mark, Plot, TaskView


class Step1(TaskView):
    """View of `evals.tasks.step1`."""

    compared = False  # the first training rows are others at another length
    plot = Plot(
        name="step1",
        section="Before the first update",
        alternative="First loss against candidate base, for every member.",
        caption="Nats per token of the first training rows above those under the trained variant, "
        "before any update, paired by token; 95% intervals. The scale is linear below 0.01. The "
        "base with the lowest first loss need not be the best base for continued training.",
        xlabel="candidate base (log scale)",
        ylabels=("first loss above that of\nthe trained variant (nats per token)",),
        x_scale="log",
        y_scale="symlog",
        mark="trained variant",
        levels="no change",
        bars=True,
    )

    def columns(self, rows: Rows, trained: Rows | None) -> dict[str, float]:
        """Return nats per token above the trained variant, and their standard error."""
        if trained is None:
            return {}
        change = first_loss(rows, trained)
        return {"first_loss": change.mean, "first_loss_error": change.standard_error}

    def curves(self, trained: Rows, rows: Rows) -> list[Curve]:
        """Return the first loss by candidate base; results.csv has the other variants."""
        changes = {
            float(np.max(of_rotary["base"])): first_loss(of_rotary, trained)
            for rotary in sorted(set(rows["rotary"].tolist()))
            for of_rotary in [select(rows, rotary=rotary)]
            if rotary.startswith("rope(") and not np.isnan(of_rotary["base"]).any()
        }
        if not changes or not len(trained["task"]):
            return []
        bases = sorted(changes)
        mean, error, num_units = np.array([changes[base] for base in bases]).T
        mark = None
        if str(trained["rotary"][0]).startswith("rope("):
            mark = Mark(float(trained["base"][0]), 0.0, "the variant it was trained with")
        return [Curve.from_means(bases, mean, error, mark, num_units=num_units)]


def first_loss(rows: Rows, trained: Rows) -> summaries.MeanWithError:
    """Return the first loss under one variant minus that of the trained one, nats per token.

    Losses are paired by chunk within each seed, then averaged over seeds. The standard error treats
    chunks as independent, because there are too few rows to be the unit.
    """
    pairs = []
    for seed in np.unique(trained["seed"]).tolist():
        seed_rows = [select(part, seed=seed) for part in (rows, trained)]
        # An earlier evaluation may have had fewer rows.
        both = np.intersect1d(seed_rows[0]["document"], seed_rows[1]["document"])
        seed_rows = [
            {name: column[np.isin(part["document"], both)] for name, column in part.items()}
            for part in seed_rows
        ]
        if len(both):
            pairs.append(summaries.difference(*seed_rows, unit=("document", "query")))
    error = np.sqrt(sum(pair.standard_error**2 for pair in pairs)) / max(len(pairs), 1)
    mean = np.mean([pair.mean for pair in pairs]) if pairs else np.nan
    return summaries.MeanWithError(float(mean), float(error), sum(pair.num_units for pair in pairs))
