"""Prompts as lists of ids: what the tasks asked in words share.

A prompt is encoded part by part and the parts are joined as ids; text is never decoded and encoded
again, so what is asked for is the same ids wherever it stands. A space before a word belongs to
the word; the space before a number is an id of its own that is given, not asked.
"""

import functools
import hashlib
from collections.abc import Callable

import numpy as np

import evals
from data.tokenizer import Tokenizer
from evals.task import Task

# The haystack of RULER (Hsieh et al., arXiv 2404.06654) and of landmark attention's passkey.
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def encoder(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Encodes the parts of a prompt."""
    return functools.partial(tokenizer.encode, inside=True)


def digits(tokenizer: Tokenizer, number: int, *, task: str) -> list[int]:
    """The ids of a number, one a digit.

    Raises:
      ValueError: if a digit is not one id of this tokenizer, naming the task.
    """
    try:
        return tokenizer.digit_ids[[int(digit) for digit in str(number)]].tolist()
    except ValueError as error:
        raise ValueError(f"{task} cannot ask for numbers: {error}") from None


def generator(task: Task, seed: int, length: int, number: int) -> np.random.Generator:
    """Random numbers of one document: counter-based, keyed by all that the document is made of.

    Documents of training are keyed otherwise (`data.retrieval.make`), so none is ever shared.
    """
    key = repr((seed, evals.expression(task), length, number)).encode()
    digest = hashlib.blake2b(key, digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def possible(low: int, high: int, wanted: tuple[int, int] | None) -> tuple[int, int]:
    """The part of the wanted distances that lies in low ... high, all ends included.

    Raises:
      ValueError: if there is none.
    """
    if wanted is None:
        return low, high
    if wanted[1] < low or wanted[0] > high:
        raise ValueError(
            f"no question can be asked at distances {wanted[0]} to {wanted[1]}; at this length "
            f"there are {low} to {high}"
        )
    return max(low, wanted[0]), min(high, wanted[1])


def distance(
    random: np.random.Generator, low: int, high: int, wanted: tuple[int, int] | None
) -> int:
    """One of the `possible` distances.

    Half log-uniform, half uniform, so that near and far are both seen.
    """
    low, high = possible(low, high, wanted)
    u, which = random.random(2)
    drawn = low + u * (high + 1 - low) if which < 0.5 else low * ((high + 1) / low) ** u
    return min(int(drawn), high)


def check_length(task: str, length: int, shortest: int) -> None:
    """Raises ValueError, naming the shortest length, if `length` is below it."""
    if length < shortest:
        raise ValueError(
            f"{task} does not fit length={length}; the shortest that works with this tokenizer "
            f"is {shortest}"
        )
