"""Entries of a key and a number, such as red-fox 12345 or Anna Baker 7204418365, as token ids.

Instead of both there may be UUIDs.
"""

import functools
import hashlib
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ropewalk.data.task import Sample, TaskContext
from ropewalk.data.tokenizer import Tokenizer


class Entry(NamedTuple):
    """Ids of an entry."""

    before: list[int]
    number: list[int]
    after: list[int]

    @property
    def ids(self) -> list[int]:
        """All ids."""
        return self.before + self.number + self.after


class Pairs:
    """Keys of two words as ids; each word is encoded once.

    Attributes:
      longest, shortest: bounds on the number of ids of a key.
    """

    def __init__(self, firsts: list[list[int]], seconds: list[list[int]]):
        self._firsts, self._seconds = firsts, seconds
        self.longest, self.shortest = (
            extreme(map(len, firsts)) + extreme(map(len, seconds)) for extreme in (max, min)
        )

    def __len__(self) -> int:
        return len(self._firsts) * len(self._seconds)

    def __getitem__(self, index: int) -> list[int]:
        first, second = divmod(index, len(self._seconds))
        return self._firsts[first] + self._seconds[second]


class Uuids:
    """UUIDs of version 4 as ids, by their index in a fixed list; `prefix` stands before them.

    Attributes:
      longest, shortest: bounds on the number of ids: a character has one id at most, and no id
        spans two of the five groups.
    """

    def __init__(self, tokenizer: Tokenizer, prefix: str = ""):
        self._tokenizer, self._prefix = tokenizer, prefix
        self.longest, self.shortest = len(prefix) + 36, 5

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: int) -> list[int]:
        digest = hashlib.blake2b(str(index).encode(), digest_size=16).digest()
        text = self._prefix + str(uuid.UUID(bytes=digest, version=4))
        return self._tokenizer.encode(text, inside=True)


@functools.lru_cache(maxsize=64)
def pairs(
    tokenizer: Tokenizer,
    firsts: Sequence[str],
    seconds: Sequence[str],
    prefixes: tuple[str, str] = ("", "-"),
) -> Pairs:
    """Return all keys of these words; `prefixes` stand before first and second words."""
    return Pairs(
        *(
            [tokenizer.encode(prefix + word, inside=True) for word in column]
            for prefix, column in zip(prefixes, (firsts, seconds), strict=True)
        )
    )


def numbers(
    tokenizer: Tokenizer, values: Sequence[int] | np.ndarray, *, task: str
) -> list[list[int]]:
    """Return the ids of numbers with equally many digits: one id per digit, or fewer.

    Raises:
      ValueError: if a digit is not one id of this tokenizer; it names the task.
    """
    powers = 10 ** np.arange(len(str(values[0])) - 1, -1, -1)
    try:
        if not tokenizer.splits_digits:
            return [tokenizer.encode(str(value), inside=True) for value in values]
        return tokenizer.digit_ids[np.asarray(values)[:, None] // powers % 10].tolist()
    except ValueError as error:
        raise ValueError(f"{task} cannot ask for numbers: {error}") from None


def draw_values(
    context: TaskContext, sample: Sample, values: range | Uuids, count: int, *, task: str
) -> list[list[int]]:
    """Draw the ids of numbers, which have equally many digits, or of UUIDs; as `numbers`."""
    if isinstance(values, Uuids):
        return [values[index] for index in sample.random.integers(len(values), size=count).tolist()]
    drawn = sample.random.integers(values.start, values.stop, size=count)
    return numbers(context.tokenizer, drawn, task=task)


def draw_entries(
    context: TaskContext,
    sample: Sample,
    names: Pairs | Uuids,
    around: Sequence[list[int]],
    values: range | Uuids,
    *,
    task: str,
    count: int | None = None,
) -> tuple[list[int], list[Entry]]:
    """Draw entries with different keys.

    Args:
      context: tokenizer and length.
      sample: its random numbers are used.
      names: the keys.
      around: ids before the key, between key and number, and after the number.
      values: as of `draw_values`.
      task: name of the task in messages.
      count: number of entries; None: more than fit into the context, if there are so many.

    Returns:
      Indices of the keys, and the entries.
    """
    before, between, after = around
    if count is None:
        # Of the shortest entry; its words and its number may be one id each.
        num_ids = sum(map(len, around)) + 3
        if isinstance(values, range) and context.tokenizer.splits_digits:
            num_ids += len(str(values.start)) - 1
        count = min(context.length // num_ids + 1, len(names))
    indices = sample.random.choice(len(names), size=count, replace=False).tolist()
    drawn = draw_values(context, sample, values, count, task=task)
    return indices, [
        Entry(before + names[index] + between, value, after)
        for index, value in zip(indices, drawn, strict=True)
    ]


def append_entries(
    tokens: list[int], entries: Sequence[Entry], room: int, *, task: str
) -> np.ndarray:
    """Append the entries that fit into `room` ids; return the indices of their numbers.

    Raises:
      ValueError: if all entries fit, because the task has no more keys.
    """
    sizes = np.array([list(map(len, entry)) for entry in entries])
    ends = np.cumsum(sizes.sum(axis=1))
    count = int(np.searchsorted(ends, room, side="right"))
    if count == len(entries):
        raise ValueError(f"{task} does not fit this length: it has {count} different keys")
    starts = len(tokens) + ends[:count] - sizes[:count, 1:].sum(axis=1)
    for entry in entries[:count]:
        tokens += entry.ids
    return starts
