"""Copying at a lag: a repeated text, whose length is the distance.

    text=random   random ids, repeated to fill the context (Olsson et al., 2022); every id that the
                  past determines is an answer
    text=natural  held-out text, twice at the end of the context; another text fills the context
                  before it: o o o o a b c d a b [c d]
    text=control  the same answers without the first copy, which is replaced by a continuation of
                  the other text: o o o o o o o o a b [c d]

With `passage=P` the repeated text has P tokens at every lag, and the other text also lies between
the copies, so that lags differ in nothing else: o o a b o o o o a [b].

Natural and control are the two halves of the Forgetting Curve (arXiv 2410.04727). Answers are the
ids of the second half of the second copy. Documents of equal number differ only in the first copy,
so a model's gain from copying is a paired difference (`reporting.tasks.lagcopy`).
"""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tasks import lagcopy
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import prompts, text
from ropewalk.utils.checks import Bounds, Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(lagcopy.Lagcopy):
    """Copying at a lag; see the module.

    Attributes:
      text: "random", "natural" or "control".
      lag: tokens from the first copy to the second, one more than the distance; None: drawn for
        each document up to the length, half of the lags log-uniformly and half uniformly.
      passage: tokens of the repeated text; a shorter lag repeats `lag` tokens. None: the lag. Only
        for natural text and its control.
      crops: natural text and control: texts that a pair of long documents gives, without overlap,
        at most. They are one document of the statistics.
      path: natural text and control: JSON lines, Parquet or .txt files, or their folder; None: the
        run's held-out text.
    """

    text: Literal["random", "natural", "control"] = "random"
    lag: Annotated[int, Bounds(at_least=2)] | None = None
    passage: Annotated[int, Bounds(at_least=2)] | None = None
    crops: Count = 1
    path: str | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.text != "random" and self.answers != lagcopy.Lagcopy.answers:
            raise ValueError(
                "lagcopy(answers=...) needs text=random: other texts have fixed answers"
            )
        if self.text == "random" and (self.passage or self.crops > 1 or self.path):
            raise ValueError(
                "lagcopy(passage=..., crops=..., path=...) need text=natural or text=control"
            )

    @property
    def kind(self) -> Literal["retrieval", "accuracy"]:
        """Retrieval for random ids; natural text can be guessed, so it is compared with control."""
        return "retrieval" if self.text == "random" else "accuracy"

    def least_length(self, context: TaskContext) -> int:
        """Return two copies, for random ids plus the id that is the answer."""
        if self.text != "random":
            lag = self.lag or 2
            return lag + self._copied(lag)
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
        room = context.length - self._copied(self.lag or 2)
        cropped = text.crops(
            context, pairs, task=self.expression, length=room, max_crops=self.crops, path=self.path
        )
        return (
            (number // 2, list(zip(others, crops, strict=False)))
            for (number, others), (_, crops) in zip(cropped, cropped, strict=False)
        )

    def document(self, context: TaskContext, sample: Sample) -> Document | list[Document]:
        """Make the other text, the first copy unless this is the control, and the second."""
        if self.text == "random":
            return super().document(context, sample)
        rows, first_query = [], 0
        for other, repeated in sample.source:
            row = self._row(context, self._lag(context, sample), other.tokens, repeated.tokens)
            rows.append(dataclasses.replace(row, first_query=first_query))
            first_query += len(row.answers)
        return rows

    def _row(
        self, context: TaskContext, lag: int, other: np.ndarray, repeated: np.ndarray
    ) -> Document:
        length, size = context.length, self._copied(lag)
        copy = repeated[1 : size + 1]
        before = other[1 : length - size + 1].copy()
        if self.text == "natural":
            first = len(before) - lag
            before[first : first + size] = copy
        tokens = np.concatenate([[context.tokenizer.bos_id], before, copy])
        return lagcopy.copied(tokens, np.arange(length + 1 - (size + 1) // 2, length + 1), lag)

    def _copied(self, lag: int) -> int:
        """Return the tokens that are repeated at a lag."""
        return min(self.passage or lag, lag)

    def _lag(self, context: TaskContext, sample: Sample) -> int:
        if self.lag or self.text == "random":
            return self.lag or super()._lag(context, sample)
        longest = max(context.length // 2, context.length - (self.passage or context.length))
        return prompts.distance(sample.random, 2, longest)

    def chance(self, tokenizer: Tokenizer) -> float:
        """Return the accuracy of a guess, 0 for natural text, whose baseline is the control."""
        return super().chance(tokenizer) if self.text == "random" else 0.0
