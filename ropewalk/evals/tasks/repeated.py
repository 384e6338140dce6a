"""Su's table: share of right next tokens, at the trained length and beyond it.

    repeated                at the trained length   the reference
    repeated(lag=trained)   at a longer length      the first T tokens of a text, again and again
    repeated(lag=half)      at a longer length      its first T/2 tokens, again and again
    repeated                at a longer length      the text as it is

with T the trained length (Su Jianlin, kexue.fm/archives/9706; he does not state the lag). A variant
extrapolates if its share stays high beyond T in the text as it is. If it is higher still in
repeated text, the model also copies from `lag` tokens back, which perplexities cannot show.
"""

import dataclasses
from typing import Literal

import numpy as np

from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.evals.text import CropTask
from ropewalk.utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(CropTask):
    """Su's table; see the module. Answers are single tokens.

    A document has answers at `tokens` positions, one at a random position of each of `tokens` equal
    parts of the length. Positions and crops are the same for every lag and run. `distance` is the
    lag; it is 0 in text without repetition and in the first copy.

    Attributes:
      lag: "none", "trained" (the trained length) or "half" (half of the trained length).
      tokens: answers per document.
    """

    kind = "accuracy"

    lag: Literal["none", "trained", "half"] = "none"
    tokens: Count = 64

    def least_length(self, context: TaskContext) -> int:
        """Return one token for each answer, and at least one repeated token."""
        return max(self.tokens, 0 if self.lag == "none" else self._lag(context) + 1)

    def _lag(self, context: TaskContext) -> int:
        trained = context.data.context_length
        return {"none": context.length, "trained": trained, "half": trained // 2}[self.lag]

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the start of a crop, repeated to fill the length."""
        lag = self._lag(context)
        # Source index of each id: BOS, then 1 ... lag, and again 1 ... lag.
        source = np.append(0, np.arange(context.length) % lag + 1)
        places = self._places(context.length, sample.number, context.seed)
        distance = np.where(places > lag, lag, 0)
        answers = np.stack([places, np.ones_like(places), distance], axis=1)
        return Document.from_lists(sample.source.tokens[source], answers)

    def _places(self, length: int, number: int, seed: int) -> np.ndarray:
        """Draw ascending indices into BOS and `length` ids; BOS is never drawn."""
        random = np.random.Generator(np.random.Philox(key=[seed, number]))
        parts = np.arange(self.tokens + 1) * length // self.tokens
        return random.integers(parts[:-1], parts[1:]) + 1
