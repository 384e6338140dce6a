"""Phone book: look up one of many names (Jelassi et al., arXiv 2402.01032).

Anna Baker: 7204418365         as many as fit, every name once
...

Paul Hill: 9215530172          two of them again, which show what is asked for
Ruth Stone: 6331902754

Anna Baker: [7204418365]
"""

import dataclasses
import functools

import numpy as np

from data.task import Asked, Document, Draw
from data.tokenizer import Tokenizer
from data.words import FIRST_NAMES, LAST_NAMES
from evals import prompts
from evals.prompts import PromptTask


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Ids of every part of an entry, encoded once."""

    first_names: list[list[int]]
    last_names: list[list[int]]
    middle: list[int]
    line: list[int]
    longest: int  # ids of the longest entry


@functools.lru_cache(maxsize=8)
def _parts(tokenizer: Tokenizer) -> _Parts:
    encode = prompts.encoder(tokenizer)
    first, last = [encode(name) for name in FIRST_NAMES], [encode(" " + n) for n in LAST_NAMES]
    middle, line = encode(": "), encode("\n")
    name = max(map(len, first)) + max(map(len, last))
    return _Parts(first, last, middle, line, name + len(middle) + 10 + len(line))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phonebook(PromptTask):
    """See the module."""

    kind = "retrieval"

    def least_length(self, asked: Asked) -> int:
        """Three entries, two of them again, and one more time the third, without its new line."""
        parts = _parts(asked.tokenizer)
        return 6 * parts.longest + len(parts.line)

    def document(self, asked: Asked, draw: Draw) -> Document:
        """As many entries as fit, two of them again, and the one that is asked for."""
        tokenizer, length, random = asked.tokenizer, asked.length, draw.random
        parts = _parts(tokenizer)
        num_names = len(parts.first_names) * len(parts.last_names)
        shortest = 2 + len(parts.middle) + 10 + len(parts.line)
        count = min(length // shortest + 1, num_names)
        names = random.choice(num_names, size=count, replace=False).tolist()
        values = random.integers(6 * 10**9, 10**10, size=count).tolist()
        entries = []
        for name, value in zip(names, values, strict=True):
            first, last = divmod(name, len(parts.last_names))
            before = parts.first_names[first] + parts.last_names[last] + parts.middle
            entries.append((before, prompts.digits(tokenizer, value, task="phonebook")))

        sizes = np.array([len(before) + 10 + len(parts.line) for before, _ in entries])
        room = length - 3 * sizes.max() - len(parts.line)
        size = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
        if size == num_names:
            raise ValueError(f"phonebook does not fit length={length}: it has {num_names} names")
        tokens = [tokenizer.bos_id]
        said = []
        for before, value in entries[:size]:
            tokens += before
            said.append(len(tokens))
            tokens += value + parts.line
        shown = random.choice(size, size=2, replace=False).tolist()
        tokens += parts.line
        for index in shown:
            before, value = entries[index]
            tokens += before + value + parts.line
        tokens += parts.line

        far = len(tokens) - np.array(said)
        wished = prompts.distance(random, 1, length, asked.distances)
        gaps = np.abs(far - wished)
        gaps[shown] = length
        chosen = int(gaps.argmin())
        before, value = entries[chosen]
        tokens += before
        answer = len(tokens), 10, len(tokens) - 1 - said[chosen]
        return Document.of(tokens + value, [answer])

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`."""
        return 1 / (4 * 10**9)
