"""Key-value recall: pairs of key and value; some keys are repeated and ask for their value.

Multi-query associative recall (Arora et al., arXiv 2312.04927) at chosen distances: evenly over
octaves, odd and even, and equally many per octave at every length.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from ropewalk.data.task import Document, Sample, Task, TaskContext, draw_over_octaves
from ropewalk.data.tokenizer import NUM_KEYS, NUM_VALUES
from ropewalk.utils.checks import Bounds, Count, Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kv(Task):
    """Key-value recall; a short document has fewer pairs and answers.

    An answer needs six tokens: the defaults fit from 128 tokens on.

    Attributes:
      pairs: keys of a document, each with a value; keys without a question occur once.
      per_octave: average number of answers per octave of distance, limited by `pairs`: the defaults
        reach 32 answers per document at 1,600 tokens.
      answers: answers of a document, evenly over its octaves, instead of `per_octave`.
      keys: number of ids that keys are drawn from. Beyond the reserved ids, ids of the tokenizer's
        fillers are keys, and fill no more.
      longest: longest distance of an answer, tokens; None: the document's.
    """

    kind = "retrieval"
    needs_training = True
    num_choices = NUM_VALUES

    pairs: Count = 32
    per_octave: Positive = 3.0
    answers: Count | None = None
    keys: Annotated[int, Bounds(at_least=1, at_most=2**16)] = NUM_KEYS
    longest: Count | None = None

    def least_length(self, context: TaskContext) -> int:
        """Return 4: two pairs of two ids."""
        return 4

    def __post_init__(self):
        super().__post_init__()
        if self.answers and self.answers > self.pairs:
            raise ValueError(f"answers={self.answers} must be at most pairs={self.pairs}")
        if self.pairs > self.keys:
            raise ValueError(f"pairs={self.pairs} must be at most keys={self.keys}")

    def check(self, context: TaskContext) -> None:
        """Raise ValueError as `data.task.Task.check`, or if the tokenizer has too few ids."""
        super().check(context)
        num_more, num_fillers = self.keys - NUM_KEYS, len(context.tokenizer.fillers)
        if num_more >= num_fillers:
            raise ValueError(
                f"{self.expression} needs {num_more} more key ids, and the tokenizer has "
                f"{num_fillers} fillers; raise data.vocab_size and model.vocab_size, or lower keys"
            )

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Return pairs without overlap, at evenly spread distances, and fillers in between."""
        tokenizer, random, length = context.tokenizer, sample.random, context.length
        twice, once = self.layout(length, random)

        num_pairs, num_more = twice.shape[1] + len(once), max(0, self.keys - NUM_KEYS)
        key_ids = np.append(tokenizer.keys, tokenizer.fillers[:num_more])
        fillers = tokenizer.fillers[num_more:]
        keys = key_ids[random.permutation(self.keys)[:num_pairs]]
        values = tokenizer.values[random.integers(NUM_VALUES, size=num_pairs)]
        tokens = fillers[random.integers(len(fillers), size=length + 1)]
        tokens[0] = tokenizer.bos_id
        num_twice = twice.shape[1]
        for starts in twice:
            tokens[starts], tokens[starts + 1] = keys[:num_twice], values[:num_twice]
        tokens[once], tokens[once + 1] = keys[num_twice:], values[num_twice:]
        first, second = twice[:, np.argsort(twice[1])]
        # The logits at the second key predict the value after the first key.
        answers = np.stack([second + 1, np.ones_like(second), second - (first + 1)], axis=1)
        return Document.from_lists(tokens, answers)

    def layout(self, length: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw the positions of all keys in a document of `length` tokens; a value follows each.

        Args:
          length: tokens without BOS.
          random: random generator of the document.

        Returns:
          int64 `[2, answers]`, the first and the second position of the keys with a question, and
          int64 `[pairs - answers]`, the positions of the others; fewer if there is no room.
        """
        farthest = length - 3  # a pair at each end
        if self.longest is not None:
            farthest = min(self.longest, farthest)
        num_answers = self.num_answers(length, farthest, random)
        distances = draw_over_octaves(random, num_answers, 1, farthest)
        descending = np.sort(distances)[::-1].tolist()
        return place(descending, self.pairs, length, farthest, random)

    def num_answers(self, length: int, farthest: int, random: np.random.Generator) -> int:
        """Return a random integer whose mean over documents is the wanted number of answers."""
        wanted = self.answers or self.per_octave * np.log2(farthest + 1)
        return max(1, int(min(wanted, self.pairs, length / 6) + random.random()))


def place(
    distances: list[int],
    num_pairs: int,
    length: int,
    farthest: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices in 1 ... length of the keys, each of which needs two ids.

    The bits of one integer are a set of indices, so "both ends are free" is a shift and an AND. A
    distance that does not fit becomes the nearest distance that fits.

    Args:
      distances: distances of the pairs with a question, descending, because far ones have the
        fewest positions.
      num_pairs: number of all pairs.
      length: tokens of the document without BOS.
      farthest: longest possible distance.
      random: random generator.

    Returns:
      As `Kv.layout`.
    """
    free = (1 << length) - 2  # bit p: a pair may begin at p, from 1 to length - 1
    shares = random.random(num_pairs).tolist()
    twice, once = [], []
    for distance, share in zip(distances, shares, strict=False):
        for gap in nearest(distance + 1, farthest + 1):
            if both := free & (free >> gap):
                first = lowest_from(both, 1 + int(share * (length - 1 - gap)))
                twice.append((first, first + gap))
                free &= ~touched(first) & ~touched(first + gap)
                break
    for share in shares[len(distances) :]:
        if not free:
            break
        once.append(lowest_from(free, 1 + int(share * (length - 1))))
        free &= ~touched(once[-1])
    return np.array(twice).T, np.array(once, int)


def nearest(gap: int, longest: int) -> Iterator[int]:
    """Yield all gaps from 2 to `longest`, the nearest first."""
    yield gap
    for change in range(1, longest):
        if gap - change >= 2:
            yield gap - change
        if gap + change <= longest:
            yield gap + change


def lowest_from(bits: int, start: int) -> int:
    """Return the lowest index from `start` on in a set of bits, or else the lowest index."""
    later = (bits >> start << start) or bits
    return (later & -later).bit_length() - 1


def touched(start: int) -> int:
    """Return the set of indices at which no other pair may start after one at `start` >= 1."""
    return 7 << (start - 1)
