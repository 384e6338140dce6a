"""Key-value recall: pairs of key and value; some keys are repeated and ask for their value.

Multi-query associative recall (Arora et al., arXiv 2312.04927) at chosen distances: evenly over
octaves, odd and even, and equally many per octave at every length.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from data.config import DataConfig
from data.task import Document, Sample, Task, TaskContext, evenly, possible
from data.tokenizer import NUM_KEYS, NUM_VALUES
from utils.checks import Bounds, Count, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kv(Task):
    """Key-value recall; a short document has fewer pairs and answers.

    An answer needs six tokens: the defaults fit from 128 tokens on.

    Attributes:
      pairs: keys of a document, each with a value; keys without a question occur once.
      per_octave: average number of answers per octave of distance, limited by `pairs`: the defaults
        reach 32 answers per document at 1,600 tokens.
      answers: answers of a document, evenly over its octaves, instead of `per_octave`.
    """

    kind = "retrieval"
    num_choices = NUM_VALUES

    pairs: Annotated[int, Bounds(at_least=1, at_most=NUM_KEYS)] = 32
    per_octave: Positive = 3.0
    answers: Count | None = None

    def least_length(self, context: TaskContext) -> int:
        """Return 4: two pairs of two ids."""
        return 4

    def __post_init__(self):
        super().__post_init__()
        if self.answers and self.answers > self.pairs:
            raise ValueError(f"answers={self.answers} must be at most pairs={self.pairs}")

    def num_others(self, data: DataConfig, length: int) -> int:
        """Return the number of other keys; for a short document, about as many as fit."""
        return max(1, min(self.pairs, length // 4) - 1)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Return pairs without overlap, at evenly spread distances, and fillers in between."""
        tokenizer, random, length = context.tokenizer, sample.random, context.length
        farthest = length - 3  # a pair at each end
        num_answers = self._num_answers(length, farthest, random)
        distances = evenly(random, num_answers, *possible(1, farthest, context.distances))
        twice, once = _place(np.sort(distances)[::-1].tolist(), self.pairs, length, random)

        num_pairs = twice.shape[1] + len(once)
        keys = tokenizer.keys[random.permutation(NUM_KEYS)[:num_pairs]]
        values = tokenizer.values[random.integers(NUM_VALUES, size=num_pairs)]
        tokens = tokenizer.fillers[random.integers(len(tokenizer.fillers), size=length + 1)]
        tokens[0] = tokenizer.bos_id
        num_twice = twice.shape[1]
        for starts in twice:
            tokens[starts], tokens[starts + 1] = keys[:num_twice], values[:num_twice]
        tokens[once], tokens[once + 1] = keys[num_twice:], values[num_twice:]
        first, second = twice[:, np.argsort(twice[1])]
        # The logits at the second key predict the value after the first key.
        answers = np.stack([second + 1, np.ones_like(second), second - (first + 1)], axis=1)
        return Document.from_lists(tokens, answers)

    def _num_answers(self, length: int, farthest: int, random: np.random.Generator) -> int:
        """Return a random integer whose mean over documents is the wanted number of answers."""
        wanted = self.answers or self.per_octave * np.log2(farthest + 1)
        return max(1, int(min(wanted, self.pairs, length / 6) + random.random()))


def _place(
    distances: list[int], num_pairs: int, length: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices in 1 ... length of the keys, each of which needs two ids.

    The bits of one integer are a set of indices, so "both ends are free" is a shift and an AND. A
    distance that does not fit becomes the nearest distance that fits.

    Args:
      distances: distances of the pairs with a question, descending, because far ones have the
        fewest positions.
      num_pairs: number of all pairs.
      length: tokens of the document without BOS.
      random: random generator.

    Returns:
      int64 `[2, answers]`, the first and second index of the pairs that occur twice, and int64
      `[pairs - answers]`, the index of the others; fewer if there is no room.
    """
    free = (1 << length) - 2  # bit p: a pair may begin at p, from 1 to length - 1
    shares = random.random(num_pairs).tolist()
    twice, once = [], []
    for distance, share in zip(distances, shares, strict=False):
        for gap in _nearest(distance + 1, length - 2):
            if both := free & (free >> gap):
                first = _lowest_from(both, 1 + int(share * (length - 1 - gap)))
                twice.append((first, first + gap))
                free &= ~_touched(first) & ~_touched(first + gap)
                break
    for share in shares[len(distances) :]:
        if not free:
            break
        once.append(_lowest_from(free, 1 + int(share * (length - 1))))
        free &= ~_touched(once[-1])
    return np.array(twice).T, np.array(once, int)


def _nearest(gap: int, longest: int) -> Iterator[int]:
    """Yield all gaps from 2 to `longest`, the nearest first."""
    yield gap
    for change in range(1, longest):
        if gap - change >= 2:
            yield gap - change
        if gap + change <= longest:
            yield gap + change


def _lowest_from(bits: int, start: int) -> int:
    """Return the lowest index from `start` on in a set of bits, or else the lowest index."""
    later = (bits >> start << start) or bits
    return (later & -later).bit_length() - 1


def _touched(start: int) -> int:
    """Return the set of indices at which no other pair may start after one at `start` >= 1."""
    return 7 << (start - 1)
