"""Copying at a lag: random ids again and again; the distance is one less than the lag.

The repeated text of Su's blog and of Olsson et al. (2022).
"""

import dataclasses

import numpy as np

from data.task import Document, Sample, Task, TaskContext, distances, evenly, possible
from data.tokenizer import Tokenizer
from settings.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(Task):
    """See the module. Lags are spread evenly over octaves.

    Attributes:
      answers: ids asked of those that the past determines, drawn at random: a short lag leaves
        many more of them than a long one, and is not to count for more.
    """

    kind = "retrieval"
    order = 1
    since_version_2 = ("answers",)

    answers: Count = 16

    def least_length(self, context: TaskContext) -> int:
        """Two copies of two ids."""
        return 4

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Random pieces repeated to fill the length.

        A text no longer than the alphabet holds no piece twice, so one piece of context is enough.
        """
        length, lag, fillers = context.length, self._lag(context, sample), context.tokenizer.fillers
        blocks = [sample.random.permutation(len(fillers)) for _ in range(0, lag, len(fillers))]
        copies = np.resize(fillers[np.concatenate(blocks)[:lag]], length)
        tokens = np.append(context.tokenizer.bos_id, copies)
        # That the text starts again is news, so its second copy is asked from its second id on.
        determined = np.arange(lag + 2, length + 1)
        if context.data.documents == 1 or len(determined) <= self.answers:
            return copied(tokens, determined, lag)
        drawn = sample.random.choice(determined, self.answers, replace=False)
        return copied(tokens, np.sort(drawn), lag)

    def _lag(self, context: TaskContext, sample: Sample) -> int:
        nearest, farthest = possible(1, context.length - 3, context.distances)
        spread = distances if context.data.documents == 1 else evenly
        return int(spread(sample.random, 1, nearest + 1, farthest + 1)[0])

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 1 / len(tokenizer.fillers)


def copied(tokens: np.ndarray, start: np.ndarray, lag: int) -> Document:
    """A document that asks for single ids, each said `lag` tokens before."""
    answers = np.stack([start, np.ones_like(start), np.full_like(start, lag - 1)], axis=1)
    return Document.from_lists(tokens, answers)
