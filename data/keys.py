"""Documents that list keys with a number each: red-fox and 12345, Anna Baker and 7204418365."""

import functools
from collections.abc import Sequence

import numpy as np

from data.task import Sample, TaskContext
from data.tokenizer import Tokenizer

Entry = tuple[list[int], list[int]]  # ids up to the number, and from the number on


class Pairs:
    """Keys of two words as ids; words are encoded once and joined as ids.

    Attributes:
      longest, shortest: ids of the longest key, at most, and of the shortest, at least.
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


@functools.lru_cache(maxsize=64)
def pairs(
    tokenizer: Tokenizer,
    firsts: Sequence[str],
    seconds: Sequence[str],
    before: tuple[str, str] = ("", "-"),
) -> Pairs:
    """All keys of these words, `before` them what joins them to the text."""
    return Pairs(
        *(
            [tokenizer.encode(prefix + word, inside=True) for word in words]
            for prefix, words in zip(before, (firsts, seconds), strict=True)
        )
    )


def digits(tokenizer: Tokenizer, numbers: Sequence[int] | np.ndarray, *, task: str) -> list:
    """The ids of numbers of equally many digits, one a digit.

    Raises:
      ValueError: if a digit is not one id of this tokenizer, naming the task.
    """
    powers = 10 ** np.arange(len(str(numbers[0])) - 1, -1, -1)
    try:
        return tokenizer.digit_ids[np.asarray(numbers)[:, None] // powers % 10].tolist()
    except ValueError as error:
        raise ValueError(f"{task} cannot ask for numbers: {error}") from None


def drawn(
    context: TaskContext,
    sample: Sample,
    names: Pairs,
    around: Sequence[list[int]],
    values: range,
    *,
    task: str,
) -> tuple[list[int], list[Entry]]:
    """Entries for more different keys than fit, as far as there are so many: which, and their ids.

    Args:
      around: ids before the key, between key and number, and after the number.
      values: of the numbers; equally many digits.
    """
    before, between, after = around
    num_ids = sum(map(len, around)) + 2 + len(str(values.start))  # of the shortest
    count = min(context.length // num_ids + 1, len(names))
    indices = sample.random.choice(len(names), size=count, replace=False).tolist()
    numbers = sample.random.integers(values.start, values.stop, size=count)
    said = zip(indices, digits(context.tokenizer, numbers, task=task), strict=True)
    return indices, [(before + names[index] + between, number + after) for index, number in said]


def write(tokens: list[int], entries: Sequence[Entry], room: int, *, task: str) -> np.ndarray:
    """Writes as many entries as fit `room` ids; returns where their numbers begin.

    Raises:
      ValueError: if all of them fit, naming the task: it has no more keys.
    """
    sizes = np.array([[len(before), len(after)] for before, after in entries])
    ends = np.cumsum(sizes.sum(axis=1))
    count = int(np.searchsorted(ends, room, side="right"))
    if count == len(entries):
        raise ValueError(f"{task} does not fit this length: it has {count} different keys")
    said = len(tokens) + ends[:count] - sizes[:count, 1]
    for before, after in entries[:count]:
        tokens += before + after
    return said
