"""Lines with a key and a number, then some of them again, of which the number is asked.

LongEval's lines (LongChat, 2023) as a completion: no question in words, so a base model can answer
it, and small ones learn it. Numbers have five digits, so that no line is easier.
"""

import dataclasses
import functools

import numpy as np

from data import keys
from data.task import Asked, Document, Draw, Task, distances, possible
from data.tokenizer import Tokenizer
from data.words import ADJECTIVES, HELD_OUT_NOUNS, NOUNS

_QUERIES = 4  # of a document, at most


@functools.lru_cache(maxsize=8)
def _parts(tokenizer: Tokenizer) -> tuple[list[list[int]], int]:
    """Ids of a line around its key and its number; how many the longest line has."""
    template = "line ", ": REGISTER_CONTENT is <", ">\n"
    around = [tokenizer.encode(part, inside=True) for part in template]
    # Over all words: what fits in training fits in evaluation.
    longest = max(keys.pairs(tokenizer, ADJECTIVES, n).longest for n in (NOUNS, HELD_OUT_NOUNS))
    return around, sum(map(len, around)) + longest + 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(Task):
    """See the module. Nouns of evaluation are never seen in training."""

    kind = "retrieval"
    order = 2
    num_choices = 90_000

    def least_length(self, asked: Asked) -> int:
        """Two lines, and one of them again."""
        return 3 * _parts(asked.tokenizer)[1]

    def document(self, asked: Asked, draw: Draw) -> Document:
        """Lines with keys of their own, then up to four lines that repeat some of them."""
        tokenizer, length, random = asked.tokenizer, asked.length, draw.random
        around, longest = _parts(tokenizer)
        nouns = NOUNS if asked.split == "train" else HELD_OUT_NOUNS
        names = keys.pairs(tokenizer, ADJECTIVES, nouns)
        _, lines = keys.drawn(asked, draw, names, around, range(10_000, 100_000), task="lines")
        # Room for the queries first: each may repeat the longest line of those that fit.
        num_queries = min(_QUERIES, length // longest // 2)
        room = length - num_queries * max(len(before + after) for before, after in lines)
        tokens = [tokenizer.bos_id]
        said = keys.write(tokens, lines, room, task="lines").tolist()

        unasked = np.array(said)
        answers = []
        nearest, farthest = 1, length - 1
        if asked.distances is not None:
            # A line is chosen from where its repetition begins; its content is asked a head later.
            head = len(lines[0][0]) - 1
            low, high = possible(head + 1, length - 1, asked.distances)
            nearest, farthest = max(low - head, 1), high - head
        for wished in distances(random, num_queries, nearest, farthest).tolist():
            chosen = int(np.argmin(np.abs(len(tokens) - unasked - wished)))
            before, after = lines[said.index(unasked[chosen])]
            tokens += before
            answers.append((len(tokens), 5, len(tokens) - 1 - unasked[chosen]))
            tokens += after
            unasked = np.delete(unasked, chosen)
        return Document.of(tokens, answers)
