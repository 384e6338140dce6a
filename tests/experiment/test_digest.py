"""Digests are what their docstring says, of whatever type, and no small change escapes them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.experiment.checkpoint import _sum, digests

NUMBERS = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


def mix(word: int, odd: int, other: int) -> int:
    word = (word ^ word >> 16) * odd % 2**32
    word = (word ^ word >> 15) * other % 2**32
    return word ^ word >> 15


def by_hand(array: np.ndarray) -> str:
    """The same in whole numbers of Python."""
    bits = np.ascontiguousarray(array).view(f"uint{8 * array.itemsize}")
    first = second = 0
    for position, word in enumerate(bits.ravel().tolist()):
        mixed = mix(word ^ position * 0x9E3779B9 % 2**32, 0x21F0AAAD, 0xD35A2D97)
        first, second = first + mixed, second + mix(mixed, 0x85EBCA6B, 0xC2B2AE35)
    return f"{first % 2**32:08x}{second % 2**32:08x}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_it_is_a_sum_over_words_and_places(dtype):
    array = np.asarray(jnp.asarray(NUMBERS * 9).astype(dtype))
    assert digests({"a": {"b": array}}) == {"a.b": by_hand(array)}
    assert digests([jnp.asarray(array), np.int32(7)]) == {
        "0": by_hand(array),
        "1": by_hand(np.array(7, np.int32)),
    }


def test_every_changed_bit_is_seen_and_every_pair_of_signs():
    changed = []
    for index, bit in itertools.product(range(NUMBERS.size), range(32)):
        changed.append(NUMBERS.copy())
        changed[-1].view(np.uint32).ravel()[index] ^= np.uint32(1 << bit)
    for places in itertools.combinations(range(NUMBERS.size), 2):
        changed.append(NUMBERS.copy())
        changed[-1].ravel()[list(places)] *= -1
        changed.append(NUMBERS.copy())
        changed[-1].ravel()[list(places)] = NUMBERS.ravel()[list(places[::-1])]
    first, second = jax.vmap(_sum)(np.stack([NUMBERS, *changed]))
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == 1 + len(changed)
