"""Key-value recall: keys are said with a value each, some of them again, and then it is asked.

Multi-query associative recall (Arora et al., arXiv 2312.04927) at distances that are chosen: evenly
over octaves, odd and even ones alike, as many in an octave at every length.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from data import slots
from data.config import DataConfig
from data.task import Document, Sample, Task, TaskContext, evenly, possible
from data.tokenizer import NUM_KEYS, NUM_VALUES
from settings.checks import Bounds, Count, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kv(Task):
    """See the module. A length without room for all of it holds fewer of both.

    There is room for an answer in six tokens: with the defaults, for all from 128 tokens on.

    Attributes:
      pairs: keys of a document, each with a value; those that are not asked are said once.
      per_octave: answers in an octave of distance, on average, as far as there are pairs: with the
        defaults up to 1,600 tokens; 32 in a document from there on.
      answers: answers of a document, evenly over its octaves, in place of `per_octave`.
    """

    kind = "retrieval"
    order = 0
    num_choices = NUM_VALUES
    since_version_2 = ("pairs", "per_octave", "answers")

    pairs: Annotated[int, Bounds(at_least=1, at_most=NUM_KEYS)] = 32
    per_octave: Positive = 3.0
    answers: Count | None = None

    def least_length(self, context: TaskContext) -> int:
        """Two pairs of two ids."""
        return 4

    def __post_init__(self):
        super().__post_init__()
        if self.answers and self.answers > self.pairs:
            raise ValueError(f"answers={self.answers} must be at most pairs={self.pairs}")

    def num_others(self, data: DataConfig, length: int) -> int:
        """Of documents too short for all pairs, about as many as have room."""
        pairs = self.pairs if data.documents == 2 else NUM_KEYS
        return max(1, min(pairs, length // 4) - 1)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Pairs at places of their own, those asked at the wished distances, filler in the rest."""
        if context.data.documents == 1:
            return slots.document(context, sample.random)
        tokenizer, random, length = context.tokenizer, sample.random, context.length
        farthest = length - 3  # a pair at each end
        num_answers = self._num_answers(length, farthest, random)
        wished = evenly(random, num_answers, *possible(1, farthest, context.distances))
        twice, once = _place(np.sort(wished)[::-1].tolist(), self.pairs, length, random)

        num_pairs = twice.shape[1] + len(once)
        keys = tokenizer.keys[random.permutation(NUM_KEYS)[:num_pairs]]
        values = tokenizer.values[random.integers(NUM_VALUES, size=num_pairs)]
        tokens = tokenizer.fillers[random.integers(len(tokenizer.fillers), size=length + 1)]
        tokens[0] = tokenizer.bos_id
        for at in twice:
            tokens[at], tokens[at + 1] = keys[: len(at)], values[: len(at)]
        tokens[once], tokens[once + 1] = keys[len(at) :], values[len(at) :]
        first, second = twice[:, np.argsort(twice[1])]
        # The second key's logits must give what follows the first key.
        answers = np.stack([second + 1, np.ones_like(second), second - (first + 1)], axis=1)
        return Document.from_lists(tokens, answers)

    def _num_answers(self, length: int, farthest: int, random: np.random.Generator) -> int:
        """Of a document; what is no whole number is the mean over documents."""
        wished = self.answers or self.per_octave * np.log2(farthest + 1)
        return max(1, int(min(wished, self.pairs, length / 6) + random.random()))


def _place(
    wished: list[int], num_pairs: int, length: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Places in 1 ... length for the pairs, two ids each: by their keys.

    Sets of places are the bits of one integer, which makes "both ends free" a shift and an and. A
    distance that no longer fits becomes the nearest that does.

    Args:
      wished: distances of the pairs asked for, far ones first: they have the fewest places.
      num_pairs: all that are to be said.

    Returns:
      int64 `[2, answers]`, where pairs are said that are said twice, earlier ones first, and
      `[others]`, of the rest: fewer where there is no room.
    """
    free = (1 << length) - 2  # bit p: a pair may begin at p, from 1 to length - 1
    shares = random.random(num_pairs).tolist()
    twice, once = [], []
    for distance, share in zip(wished, shares, strict=False):
        for gap in _nearest(distance + 1, length - 2):
            if both := free & (free >> gap):
                first = _one_of(both, 1 + int(share * (length - 1 - gap)))
                twice.append((first, first + gap))
                free &= ~_touched(first) & ~_touched(first + gap)
                break
    for share in shares[len(wished) :]:
        if not free:
            break
        once.append(_one_of(free, 1 + int(share * (length - 1))))
        free &= ~_touched(once[-1])
    return np.array(twice).T, np.array(once, int)


def _nearest(gap: int, most: int) -> Iterator[int]:
    """All gaps from 2 to `most`, the nearest first."""
    yield gap
    for change in range(1, most):
        if gap - change >= 2:
            yield gap - change
        if gap + change <= most:
            yield gap + change


def _one_of(places: int, start: int) -> int:
    """The first of the places from `start` on, or else the first."""
    later = (places >> start << start) or places
    return (later & -later).bit_length() - 1


def _touched(place: int) -> int:
    """Where no other pair may begin once one begins at `place` (at least 1)."""
    return 7 << (place - 1)
