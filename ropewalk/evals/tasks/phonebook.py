"""Phone book: look up one of many names (Jelassi et al., arXiv 2402.01032).

Anna Baker: 7204418365         as many entries as fit, with different names
...

Paul Hill: 9215530172          two entries again, as examples of the task
Ruth Stone: 6331902754

Anna Baker: [7204418365]
"""

import dataclasses

import numpy as np

from ropewalk.data import keys
from ropewalk.data.task import Document, Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import FIRST_NAMES, LAST_NAMES
from ropewalk.evals import prompts


def _names(tokenizer: Tokenizer) -> keys.Pairs:
    return keys.pairs(tokenizer, FIRST_NAMES, LAST_NAMES, ("", " "))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phonebook(prompts.PromptTask):
    """Phone book; see the module."""

    kind = "retrieval"
    num_choices = 4 * 10**9

    def least_length(self, context: TaskContext) -> int:
        """Return the length of three entries that all repeat; the last has no newline."""
        tokenizer = context.tokenizer
        _, middle, line = prompts.parts(tokenizer, "{}: {}\n")
        return 6 * (_names(tokenizer).longest + len(middle) + 10 + len(line)) + len(line)

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make as many entries as fit, two of them again, and the question."""
        length, random = context.length, sample.random
        around, values = prompts.parts(context.tokenizer, "{}: {}\n"), range(6 * 10**9, 10**10)
        _, entries = keys.draw_entries(
            context, sample, _names(context.tokenizer), around, values, task="phonebook"
        )
        line = around[-1]
        tokens = [context.tokenizer.bos_id]
        longest = max(len(entry.ids) for entry in entries)
        starts = keys.append_entries(
            tokens, entries, length - 3 * longest - len(line), task="phonebook"
        )
        shown = random.choice(len(starts), size=2, replace=False).tolist()
        tokens += line + entries[shown[0]].ids + entries[shown[1]].ids + line

        far = len(tokens) - starts
        wished = prompts.distance(random, 1, length, context.distances)
        gaps = np.abs(far - wished)
        gaps[shown] = length
        chosen = int(gaps.argmin())
        entry = entries[chosen]
        return prompts.ask(tokens, [(entry.before, entry.number, starts[chosen])])
