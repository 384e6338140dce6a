"""Fixed target: the gain of the same tokens from more context.

The last `target` tokens of a text are predicted from the 32, 64, ... tokens before them, in one
forward pass per context with BOS in front, as in rerope's evaluation (github.com/bojone/rerope).
The tokens are the same for every context, so differences are paired. Context is superficial if
perplexity stops falling at a context much shorter than the trained length and retrieval fails
beyond it (Men et al., arXiv 2405.14591).
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from data.figures import Curve, Mark, Plot, Suggestion
from data.task import Document, Results, Sample, TaskContext
from evals import text
from evals.estimate import summaries
from evals.rows import select
from utils.checks import Count

FIRST_CONTEXT = 32
ENOUGH = 0.95  # share of the longest context's gain


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedTarget(text.CropTask):
    """Loss of a fixed target by context; see the module.

    A row's `distance` is the context: tokens before the target, without BOS.

    Attributes:
      target: tokens to predict at the end of a text.
    """

    kind = "likelihood"

    plot = Plot(
        name="context_gain",
        alternative="Nats per token gained by context, against the length of the context.",
        caption="Nats per token of the same tokens with the shortest context, minus those with "
        "longer contexts, with 95% intervals over documents. The diamond marks 95% of the longest "
        "context's gain. If it lies far below the effective context, perplexity does not measure "
        "retrieval.",
        xlabel="context before the target (tokens, log scale)",
        ylabels=("nats per token less than with the shortest context",),
        mark="95% of the gain",
        levels="no gain",
    )

    target: Count = 256

    def least_length(self, context: TaskContext) -> int:
        """Return the target plus the shortest context."""
        return self.target + FIRST_CONTEXT

    def document(self, context: TaskContext, sample: Sample) -> list[Document]:
        """Make the same target after each context."""
        ids, sizes_N2 = sample.source
        return [
            text.ending(ids, sizes_N2, slice(-size - self.target, None), self.target, query)
            for query, size in enumerate(contexts(context.length - self.target))
        ]

    def columns(self, results: Results, trained: Results | None) -> dict[str, float]:
        """Return the longest context's gain and the shortest context with 95% of it (L_ppl)."""
        gain = context_gain(results)
        return {"context_gain": gain.gains[-1].mean, "context_gain_length": gain.length}

    def curves(self, trained: Results, results: Results) -> list[Curve]:
        """Return the gain by context."""
        gain = context_gain(trained)
        mean, error, _ = np.array(gain.gains).T
        mark = None
        if mean[-1] > 0:  # without a gain there is no 95% of it
            caption = f"95% of the gain from {gain.length} tokens"
            mark = Mark(gain.length, mean[gain.contexts.index(gain.length)], caption)
        return [Curve.from_means(gain.contexts, mean, error, mark)]

    @classmethod
    def suggestion(cls, length: int) -> Suggestion | None:
        """Implement `Task.suggestion`."""
        if length < 2 * FIRST_CONTEXT:
            return None
        call = ["--tasks", f"fixed_target(target={length // 2})", "--lengths", length]
        return Suggestion("The gain of the same tokens from more context.", "context_gain", [call])


def contexts(longest: int) -> list[int]:
    """Return the contexts 32, 64, ... and `longest`, tokens."""
    octaves = range((max(0, longest - 1) // FIRST_CONTEXT).bit_length())
    return [FIRST_CONTEXT << octave for octave in octaves] + [longest]


class ContextGain(NamedTuple):
    """Gain from context, nats per token: G(c) = NLL(shortest context) - NLL(c).

    Attributes:
      contexts: tokens.
      gains: gain of each context; errors are paired over documents.
      length: the smallest context with 95% of the longest context's gain, tokens (L_ppl); the
        shortest context if there is no gain.
    """

    contexts: list[int]
    gains: list[summaries.MeanWithError]
    length: int


def context_gain(rows: Results) -> ContextGain:
    """Return the gain by context of one run, variant and length.

    Raises:
      ValueError: if some documents lack some contexts.
    """
    lengths = np.unique(rows["distance"]).tolist()
    by_context = [select(rows, distance=context) for context in lengths]
    for part in by_context:
        part["query"] = np.zeros_like(part["query"])  # the same question, numbered by context
    gains = [summaries.difference(by_context[0], part) for part in by_context]
    enough = [gain.mean >= ENOUGH * gains[-1].mean for gain in gains]
    return ContextGain(lengths, gains, length=lengths[enough.index(True)])
