"""Copying at a lag: a random text repeated; the distance is one less than the lag.

The repeated text follows Su's blog and Olsson et al. (2022).
"""

import dataclasses

import numpy as np

from ropewalk.data.task import Document, Sample, Task, TaskContext, draw_over_octaves
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.utils.checks import Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(Task):
    """Copying at lags that are spread evenly over octaves.

    Attributes:
      answers: number of answers, drawn at random from the ids that the past determines. A fixed
        number gives short lags, which determine many more ids, the same weight as long ones.
    """

    kind = "retrieval"

    answers: Count = 16

    def least_length(self, context: TaskContext) -> int:
        """Return 4: two copies of two ids."""
        return 4

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Return random pieces, repeated to fill the length.

        A text no longer than the alphabet has no piece twice, so one piece of context is enough.
        """
        length, lag, fillers = context.length, self._lag(context, sample), context.tokenizer.fillers
        blocks = [sample.random.permutation(len(fillers)) for _ in range(0, lag, len(fillers))]
        copies = np.resize(fillers[np.concatenate(blocks)[:lag]], length)
        tokens = np.append(context.tokenizer.bos_id, copies)
        # Nothing predicts the start of the second copy, so answers start at its second id.
        determined = np.arange(lag + 2, length + 1)
        if len(determined) <= self.answers:
            return copied(tokens, determined, lag)
        chosen = sample.random.choice(determined, self.answers, replace=False)
        return copied(tokens, np.sort(chosen), lag)

    def _lag(self, context: TaskContext, sample: Sample) -> int:
        return int(draw_over_octaves(sample.random, 1, 2, context.length - 2)[0])

    def chance(self, tokenizer: Tokenizer) -> float:
        """Return the chance of guessing a piece."""
        return 1 / len(tokenizer.fillers)


def copied(tokens: np.ndarray, start: np.ndarray, lag: int) -> Document:
    """Return a document whose answers are single ids that occurred `lag` tokens before."""
    answers = np.stack([start, np.ones_like(start), np.full_like(start, lag - 1)], axis=1)
    return Document.from_lists(tokens, answers)
