"""Lines with a key and a number, then some of them again, of which the number is asked.

LongEval's lines (LongChat, 2023) as a completion: no question in words, so a base model can answer
it, and small ones learn it. Numbers have five digits, so that no line is easier.
"""

import dataclasses
import functools

import numpy as np

from data import keys
from data.task import Document, Sample, Task, TaskContext, distances, evenly, possible
from data.tokenizer import Tokenizer
from data.words import ADJECTIVES, HELD_OUT_NOUNS, NOUNS
from settings.checks import Count


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
    """See the module. Nouns of evaluation are never seen in training.

    Attributes:
      answers: lines asked again, where twice as many have room; spread evenly over octaves of
        distance. The other lines fill the length, so longer documents have more keys.
    """

    kind = "retrieval"
    order = 2
    since_version_2 = ("answers",)
    num_choices = 90_000

    answers: Count = 4

    def least_length(self, context: TaskContext) -> int:
        """Two lines, and one of them again."""
        return 3 * _parts(context.tokenizer)[1]

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Lines with keys of their own, then lines that repeat some of them."""
        tokenizer, length, random = context.tokenizer, context.length, sample.random
        around, longest = _parts(tokenizer)
        nouns = NOUNS if context.split == "train" else HELD_OUT_NOUNS
        names = keys.pairs(tokenizer, ADJECTIVES, nouns)
        _, lines = keys.drawn(context, sample, names, around, range(10_000, 100_000), task="lines")
        # Room for the queries first: each may repeat the longest line of those that fit.
        num_queries = min(self.answers, length // longest // 2)
        room = length - num_queries * max(len(before + after) for before, after in lines)
        tokens = [tokenizer.bos_id]
        said = keys.write(tokens, lines, room, task="lines").tolist()

        unasked = np.array(said)
        answers = []
        # A line is chosen from where its repetition begins; its content is asked a head later.
        head, last = len(lines[0][0]) - 1, len(tokens) - said[-1]
        for wished in self._wished(context, num_queries, head, last, random):
            chosen = int(np.argmin(np.abs(len(tokens) - unasked - wished)))
            before, after = lines[said.index(unasked[chosen])]
            tokens += before
            answers.append((len(tokens), 5, len(tokens) - 1 - unasked[chosen]))
            tokens += after
            unasked = np.delete(unasked, chosen)
        return Document.from_lists(tokens, answers)

    def _wished(
        self, context: TaskContext, count: int, head: int, last: int, random: np.random.Generator
    ) -> list[int]:
        """Distances from where repetitions begin, in no order; `last` is that of the last line."""
        low, high = possible(head + 1, context.length - 1, context.distances)
        if context.data.documents == 1:
            nearest, farthest = (low - head, high - head) if context.distances else (1, high)
            return distances(random, count, max(nearest, 1), farthest).tolist()
        wished = evenly(random, count, min(max(low, head + last), high), high) - head
        return random.permutation(wished).tolist()
