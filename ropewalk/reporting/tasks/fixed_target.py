"""The gain from context of a fixed target, by length of the context."""

from typing import NamedTuple

import numpy as np

from ropewalk.evals.estimate import summaries
from ropewalk.evals.rows import Rows, select
from ropewalk.reporting.task_view import Curve, Mark, Plot, TaskView

ENOUGH = 0.95  # share of the longest context's gain


class FixedTarget(TaskView):
    """View of `evals.tasks.fixed_target`."""

    plot = Plot(
        name="context_gain",
        alternative="Nats per token gained by context, against the length of the context.",
        caption="Nats per token of the same tokens with the shortest context, minus those with "
        "longer contexts, with 95% intervals over documents. The diamond marks 95% of the longest "
        "context's gain. If it lies far below the effective context, perplexity does not measure "
        "retrieval.",
        xlabel="context before the target (tokens, log scale)",
        ylabels=("nats per token less than\nwith the shortest context",),
        mark="95% of the gain",
        levels="no gain",
    )

    def columns(self, rows: Rows, trained: Rows | None) -> dict[str, float]:
        """Return the longest context's gain and the shortest context with 95% of it (L_ppl)."""
        gain = context_gain(rows)
        return {"context_gain": gain.gains[-1].mean, "context_gain_length": gain.length}

    def curves(self, trained: Rows, rows: Rows) -> list[Curve]:
        """Return the gain by context."""
        gain = context_gain(trained)
        mean, error, num_units = np.array(gain.gains).T
        mark = None
        if mean[-1] > 0:  # without a gain there is no 95% of it
            caption = f"95% of the gain from {gain.length} tokens"
            mark = Mark(gain.length, mean[np.searchsorted(gain.contexts, gain.length)], caption)
        return [Curve.from_means(gain.contexts, mean, error, mark, num_units=num_units)]


class ContextGain(NamedTuple):
    """Gain from context, nats per token: G(c) = NLL(shortest context) - NLL(c).

    Attributes:
      contexts: tokens.
      gains: gain of each context; errors are paired over documents.
      length: the smallest context with 95% of the longest context's gain, tokens (L_ppl); the
        shortest context if there is no gain, NaN if losses are not finite.
    """

    contexts: list[int]
    gains: list[summaries.MeanWithError]
    length: float


def context_gain(rows: Rows) -> ContextGain:
    """Return the gain by context of one run, variant and length.

    Raises:
      ValueError: if some documents lack some contexts.
    """
    lengths = np.unique(rows["distance"]).tolist()
    by_context = [select(rows, distance=context) for context in lengths]
    for part in by_context:
        part["query"] = np.zeros_like(part["query"])  # the same question, numbered by context
    gains = [summaries.difference(by_context[0], part) for part in by_context]
    least = ENOUGH * gains[-1].mean
    enough = (length for length, gain in zip(lengths, gains, strict=True) if gain.mean >= least)
    return ContextGain(lengths, gains, length=next(enough, np.nan))
