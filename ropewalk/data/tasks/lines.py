"""Lines with a key and a number; some lines are repeated and ask for their number.

LongEval's lines (LongChat, 2023) as a completion: without a question in words, base models can
answer and small models can learn the task. All numbers have five digits, so all lines are equally
hard.
"""

import dataclasses
import functools

import numpy as np

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext, draw_over_octaves
from ropewalk.data.text_task import TextTask
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS, NOUNS
from ropewalk.utils.checks import Count


@functools.lru_cache(maxsize=8)
def _parts(tokenizer: Tokenizer) -> tuple[list[list[int]], int]:
    """Return the ids around a line's key and number, and the length of the longest line."""
    template = "line ", ": REGISTER_CONTENT is <", ">\n"
    around = [tokenizer.encode(part, inside=True) for part in template]
    # Over the words of both splits, so that both fit the same lengths.
    longest = max(keys.pairs(tokenizer, ADJECTIVES, n).longest for n in (NOUNS, HELD_OUT_NOUNS))
    return around, sum(map(len, around)) + longest + 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(TextTask):
    """Recall of numbers by line; nouns of evaluation never occur in training.

    Attributes:
      answers: repeated lines, if twice as many fit, spread evenly over octaves of distance. The
        other lines fill the length, so longer documents have more keys.
    """

    kind = "retrieval"
    num_choices = 90_000

    answers: Count = 4

    def least_length(self, context: TaskContext) -> int:
        """Return the length of two lines and a repetition."""
        return 3 * _parts(context.tokenizer)[1]

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Return lines with different keys, then repetitions of some of them."""
        tokenizer, length, random = context.tokenizer, context.length, sample.random
        around, longest = _parts(tokenizer)
        nouns = NOUNS if context.split == "train" else HELD_OUT_NOUNS
        names = keys.pairs(tokenizer, ADJECTIVES, nouns)
        _, lines = keys.draw_entries(
            context, sample, names, around, range(10_000, 100_000), task="lines"
        )
        # Reserve room for the queries first: each may repeat the longest line.
        num_queries = min(self.answers, length // longest // 2)
        room = length - num_queries * max(len(line.ids) for line in lines)
        tokens = [tokenizer.bos_id]
        starts = keys.append_entries(tokens, lines, room, task="lines").tolist()

        remaining = np.array(starts)
        answers = []
        # Distances are from the start of a repetition; its answer follows `head` tokens later.
        head, last = len(lines[0][0]) - 1, len(tokens) - starts[-1]
        high = length - 1
        even = draw_over_octaves(random, num_queries, min(head + last, high), high) - head
        for distance in random.permutation(even).tolist():
            chosen = int(np.argmin(np.abs(len(tokens) - remaining - distance)))
            line = lines[starts.index(remaining[chosen])]
            start = len(tokens) + len(line.before)
            answers.append((start, len(line.number), start - 1 - remaining[chosen]))
            tokens += line.ids
            remaining = np.delete(remaining, chosen)
        return Document.from_lists(tokens, answers)
