"""Prompts as lists of ids, for tasks with prompts in natural language.

A prompt is encoded part by part and the parts are joined as ids, so an answer has the same ids at
every position; only with tokenizers that join digits, a text is encoded again in one piece
(`data.text_task`). A space before a word belongs to the word;
the space before a number is a separate id of the prompt.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ropewalk.data import chat, keys
from ropewalk.data.task import Document, Sample, Task, TaskContext
from ropewalk.data.text_task import TextTask
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.data.word_lists import ADJECTIVES, HELD_OUT_NOUNS

# The haystack of RULER (Hsieh et al., arXiv 2404.06654) and of landmark attention's passkey.
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptTask(TextTask):
    """A task with a prompt in natural language, which is not a training task."""

    def key(self, context: TaskContext, number: int) -> tuple:
        """Implement `Task.key`."""
        return key(self, context, number)


def key(task: Task, context: TaskContext, number: int) -> tuple:
    """Return `Task.key` where nothing is trained on: without a split."""
    return context.seed, task.identity, context.length, number


def encoder(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Return the function that encodes the parts of a prompt."""
    return functools.partial(tokenizer.encode, inside=True)


@functools.lru_cache(maxsize=256)
def parts(tokenizer: Tokenizer, template: str) -> list[list[int]]:
    """Return the ids of the parts of a template between its "{}"."""
    return list(map(encoder(tokenizer), template.split("{}")))


def begin(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return BOS and the ids of the start of a prompt."""
    return [tokenizer.bos_id, *tokenizer.encode(text)]


def fill(parts: Sequence[list[int]], *values: list[int]) -> list[int]:
    """Return the ids of a template with ids between its parts."""
    ids = list(parts[0])
    for value, part in zip(values, parts[1:], strict=True):
        ids += value + part
    return ids


def names(tokenizer: Tokenizer) -> keys.Pairs:
    """Return the keys of needles and lines, such as " red-fox"."""
    return keys.pairs(tokenizer, ADJECTIVES, HELD_OUT_NOUNS, (" ", "-"))


def turns(tokenizer: Tokenizer) -> chat.Turns:
    """Return `data.chat.turns`, made once."""
    return _turns(tokenizer, tokenizer.chat_template)


@functools.lru_cache(maxsize=8)
def _turns(tokenizer: Tokenizer, template: str | None) -> chat.Turns:
    # `template` is part of the key: tokenizers of one file may have different templates.
    return chat.turns(tokenizer)


def noise_line(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a line of noise."""
    return parts(tokenizer, NOISE + "\n")[0]


def hide(
    tokens: list[int], hay: list[int], positions: Iterable[int], entries: Iterable[keys.Entry]
) -> tuple[list[int], list[int]]:
    """Append a haystack with entries to `tokens`.

    Args:
      positions: index in `hay` before which each entry stands, ascending.

    Returns:
      The ids, and the index of each entry's number.
    """
    tokens, starts, last = list(tokens), [], 0
    for position, entry in zip(positions, entries, strict=True):
        tokens += hay[last:position] + entry.before
        starts.append(len(tokens))
        tokens += entry.number + entry.after
        last = position
    return tokens + hay[last:], starts


def distance(random: np.random.Generator, low: int, high: int) -> int:
    """Draw a distance in low ... high, ends included.

    Half of them are log-uniform, half uniform: of a log-uniform sample only 1 in 10 is in the far
    half.
    """
    u, uniform = random.random(2)
    far = low + u * (high + 1 - low)
    near = np.exp(np.log(low) + u * np.log((high + 1) / low))
    return int(far if uniform < 0.5 else near)


def random_words(
    context: TaskContext, sample: Sample, alphabet: str, letters: int, count: int
) -> list[list[int]]:
    """Ids of different words of as many letters, each with a space before it."""
    numbers = sample.random.choice(len(alphabet) ** letters, size=count, replace=False)
    places = numbers[:, None] // len(alphabet) ** np.arange(letters) % len(alphabet)
    encode = encoder(context.tokenizer)
    return [encode(" " + "".join(alphabet[letter] for letter in word)) for word in places]


def append_answers(
    tokens: list[int], answers: Iterable[tuple[list[int], list[int], int]], first_query: int = 0
) -> Document:
    """Return the document of `tokens`, followed by the answers in order.

    Args:
      answers: for each, the ids before it, its ids, and its index in `tokens`.
    """
    tokens, rows = list(tokens), []
    for before, answer, index in answers:
        tokens += before
        rows.append((len(tokens), len(answer), len(tokens) - 1 - index))
        tokens += answer
    return Document.from_lists(tokens, rows, first_query=first_query)
