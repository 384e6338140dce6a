"""Digests are what they were when checkpoints were saved; no small change escapes them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.experiment.checkpoint import _sum, digests

NUMBERS = (np.arange(-7, 8, dtype=np.float32) * 1.7).reshape(3, 5)


@pytest.mark.parametrize(
    ("dtype", "digest"),
    [
        ("float32", "dbce3f223b40a2e1"),
        ("bfloat16", "0a054cc1d70cf68a"),
        ("int32", "ae7f8160f06e5be5"),
        ("bool", "cf09d9a945ace089"),
    ],
)
def test_stored_digests_stay(dtype, digest):
    array = jnp.asarray(NUMBERS).astype(dtype)
    assert digests({"a": {"b": array}}) == digests({"a": {"b": np.asarray(array)}})
    assert digests([array, np.int32(7)]) == {"0": digest, "1": "ab71f1ff763ec00f"}


def test_every_changed_bit_is_seen_and_every_pair_of_signs():
    numbers, changed = NUMBERS + 0.3, []  # no two have one magnitude
    for index, bit in itertools.product(range(numbers.size), range(32)):
        changed.append(numbers.copy())
        changed[-1].view(np.uint32).ravel()[index] ^= np.uint32(1 << bit)
    for places in itertools.combinations(range(numbers.size), 2):
        changed.append(numbers.copy())
        changed[-1].ravel()[list(places)] *= -1
        changed.append(numbers.copy())
        changed[-1].ravel()[list(places)] = numbers.ravel()[list(places[::-1])]
    first, second = jax.vmap(_sum)(np.stack([numbers, *changed]))
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == 1 + len(changed)
