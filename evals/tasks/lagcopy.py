"""Copying at a lag: a repeated text, whose length is the distance.

    text=random   random ids, repeated to fill the context (Olsson et al., 2022); every id that the
                  past determines is an answer
    text=natural  held-out text, twice at the end of the context; another text fills the context
                  before it: o o o o a b c d a b [c d]
    text=control  the same answers without the first copy, which is replaced by a continuation of
                  the other text: o o o o o o o o a b [c d]

Natural and control are the two halves of the Forgetting Curve (arXiv 2410.04727). Answers are the
ids of the second half of the second copy. Documents of equal number differ only in the first copy,
so a model's gain from copying is a paired difference (`reporting.tasks.lagcopy`).
"""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np

from data.task import Document, Sample, TaskContext
from data.tasks import lagcopy
from data.tokenizer import Tokenizer
from evals import prompts, text
from utils.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(lagcopy.Lagcopy):
    """Copying at a lag; see the module.

    Attributes:
      text: "random", "natural" or "control".
      lag: tokens of the repeated text, one more than the distance; None: drawn for each document
        up to the length, half of the lags log-uniformly and half uniformly.
    """

    text: Literal["random", "natural", "control"] = "random"
    lag: Annotated[int, Bounds(at_least=2)] | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.text != "random" and self.answers != lagcopy.Lagcopy.answers:
            raise ValueError(
                "lagcopy(answers=...) needs text=random: other texts have fixed answers"
            )

    @property
    def kind(self) -> Literal["retrieval", "accuracy"]:
        """Retrieval for random ids; natural text can be guessed, so it is compared with control."""
        return "retrieval" if self.text == "random" else "accuracy"

    def least_length(self, context: TaskContext) -> int:
        """Return two copies, for random ids plus the id that is the answer."""
        if self.text != "random":
            return 2 * (self.lag or 2)
        return self.lag + 2 if self.lag else super().least_length(context)

    def key(self, context: TaskContext, number: int) -> tuple:
        """Return the key of a document; natural and control share theirs."""
        if self.text == "random" and self.lag is None:
            return super().key(context, number)
        # Natural and control draw equal lags.
        drawn = dataclasses.replace(self, text="natural") if self.text == "control" else self
        return prompts.key(drawn, context, number)

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Yield pairs of texts; the second is repeated, the first fills the context before it."""
        if self.text == "random":
            return super().sources(context, numbers)
        pairs = range(2 * numbers.start, 2 * numbers.stop)
        room = context.length - (self.lag or 2)
        crops = text.crops(context, pairs, task=self.expression, length=room)
        return (
            (number // 2, (other.tokens, crop.tokens))
            for (number, other), (_, crop) in zip(crops, crops, strict=False)
        )

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the other text, the first copy unless this is the control, and the second."""
        if self.text == "random":
            return super().document(context, sample)
        other, repeated = sample.source
        length, lag = context.length, self._lag(context, sample)
        copy = repeated[1 : lag + 1]
        before = other[1 : length - lag + 1].copy()
        if self.text == "natural":
            before[-lag:] = copy
        tokens = np.concatenate([[context.tokenizer.bos_id], before, copy])
        return lagcopy.copied(tokens, np.arange(length + 1 - (lag + 1) // 2, length + 1), lag)

    def _lag(self, context: TaskContext, sample: Sample) -> int:
        if self.lag or self.text == "random":
            return self.lag or super()._lag(context, sample)
        wanted = context.distances and (context.distances[0] + 1, context.distances[1] + 1)
        return prompts.distance(sample.random, 2, context.length // 2, wanted)

    def chance(self, tokenizer: Tokenizer) -> float:
        """Return the accuracy of a guess, 0 for natural text, whose baseline is the control."""
        return super().chance(tokenizer) if self.text == "random" else 0.0
