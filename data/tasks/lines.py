"""Lines with a key and a number, then some of them again, of which the number is asked.

LongEval's lines (LongChat, 2023) as a completion: no question in words, so a base model can answer
it, and small ones learn it. Numbers have five digits, so that no line is easier.
"""

import dataclasses
import functools

import numpy as np

from data.task import Asked, Document, Draw, Task, distances, possible
from data.tokenizer import Tokenizer
from data.words import ADJECTIVES, HELD_OUT_NOUNS, NOUNS

_QUERIES = 4  # of a document, at most


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Ids of every part of a line, encoded once and joined as ids: text is never encoded again."""

    start: list[int]
    adjectives: list[list[int]]
    nouns: list[list[int]]
    middle: list[int]
    end: list[int]
    longest: int  # ids of the longest line


@functools.lru_cache(maxsize=8)
def _parts(tokenizer: Tokenizer, held_out: bool) -> _Parts:
    inside = functools.partial(tokenizer.encode, inside=True)
    start, middle, end = inside("line "), inside(": REGISTER_CONTENT is <"), inside(">\n")
    adjectives = [inside(word) for word in ADJECTIVES]
    nouns, held_out_nouns = ([inside("-" + word) for word in w] for w in (NOUNS, HELD_OUT_NOUNS))
    # Over all words: what fits in training fits in evaluation.
    words = max(map(len, adjectives)) + max(map(len, nouns + held_out_nouns))
    longest = len(start) + words + len(middle) + 5 + len(end)
    nouns = held_out_nouns if held_out else nouns
    return _Parts(start, adjectives, nouns, middle, end, longest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(Task):
    """See the module. Nouns of evaluation are never seen in training."""

    kind = "retrieval"
    order = 2

    def least_length(self, asked: Asked) -> int:
        """Two lines, and one of them again."""
        return 3 * _parts(asked.tokenizer, False).longest

    def document(self, asked: Asked, draw: Draw) -> Document:
        """Lines with keys of their own, then up to four lines that repeat some of them."""
        tokenizer, length, random = asked.tokenizer, asked.length, draw.random
        parts = _parts(tokenizer, asked.split != "train")
        lines = _lines(parts, tokenizer, length, random)
        sizes = np.array([len(before) + len(after) for before, after in lines])
        ends = 1 + np.cumsum(sizes)
        # Room for the queries first: each may repeat the longest line of those that fit.
        num_queries = min(_QUERIES, length // parts.longest // 2)
        num_lines = int(np.searchsorted(ends, length + 1 - num_queries * sizes.max(), side="right"))
        check_keys(num_lines, parts, asked)
        tokens = [tokenizer.bos_id]
        contents_at = []
        for before, after in lines[:num_lines]:
            tokens += before
            contents_at.append(len(tokens))
            tokens += after

        unasked = np.array(contents_at)
        answers = []
        nearest, farthest = 1, length - 1
        if asked.distances is not None:
            # A line is chosen from where its repetition begins; its content is asked a head later.
            head = len(lines[0][0]) - 1
            low, high = possible(head + 1, length - 1, asked.distances)
            nearest, farthest = max(low - head, 1), high - head
        for wished in distances(random, num_queries, nearest, farthest).tolist():
            chosen = int(np.argmin(np.abs(len(tokens) - unasked - wished)))
            before, after = lines[contents_at.index(unasked[chosen])]
            tokens += before
            answers.append((len(tokens), 5, len(tokens) - 1 - unasked[chosen]))
            tokens += after
            unasked = np.delete(unasked, chosen)
        return Document.of(tokens, answers)

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 1 / 90_000


def _lines(parts: _Parts, tokenizer: Tokenizer, length: int, random) -> list:
    """Ids before and after the place where a number is said, of as many lines as could fit."""
    num_keys = len(parts.adjectives) * len(parts.nouns)
    most = min(length // (len(parts.start) + 7 + len(parts.middle) + len(parts.end)) + 1, num_keys)
    keys = random.choice(num_keys, size=most, replace=False)
    contents = random.integers(10_000, 100_000, size=most)
    digits = tokenizer.digit_ids[contents[:, None] // 10 ** np.arange(4, -1, -1) % 10].tolist()
    words = (part.tolist() for part in divmod(keys, len(parts.nouns)))
    return [
        ([*parts.start, *parts.adjectives[adjective], *parts.nouns[noun], *parts.middle], content)
        for adjective, noun, content in zip(*words, [d + parts.end for d in digits], strict=True)
    ]


def check_keys(num_lines: int, parts, asked: Asked) -> None:
    """Raises ValueError where more lines would fit than there are keys."""
    num_keys = len(parts.adjectives) * len(parts.nouns)
    if num_lines == num_keys:
        raise ValueError(
            f"lines does not fit length={asked.length}: it has {num_keys} different keys"
        )
