from typing import Any

import numpy as np
import pytest

from data.config import DataConfig
from data.kv_version_1 import place_pairs
from data.task import TaskContext
from data.tasks.kv import Kv

DATA = DataConfig(source="retrieval", context_length=64, batch_size=1, documents=1)


class Reserved:
    bos_id, keys, values, fillers = 99, np.arange(64), 64 + np.arange(64), np.arange(200, 300)


def document(length, distances=None, split="train", number=0, tokenizer: Any = Reserved):
    context = TaskContext(
        data=DATA, tokenizer=tokenizer, length=length, seed=0, split=split, distances=distances
    )
    return Kv().documents(context, range(number, number + 1))[0]


def test_documents_of_all_distances_are_those_of_the_first_version():
    """A change of these ids would make stored results incomparable."""
    result = document(16, split="validation")
    assert result.tokens.tolist() == [
        *(99, 62, 104, 57, 78, 11, 127, 11, 127, 57, 78, 62, 104, 58, 66, 58, 66)
    ]
    assert result.answers.tolist() == [[8, 1, 1], [10, 1, 5], [12, 1, 9], [16, 1, 1]]


@pytest.mark.parametrize("length", [4, 9, 64, 257, 1000])
def test_every_key_occurs_twice_in_slots_of_two(length):
    for number in range(20):
        result = document(length, number=number)
        keys = result.tokens[result.tokens < 64]
        _, counts = np.unique(keys, return_counts=True)
        assert counts.tolist() == [2] * min(64, length // 4) == [2] * len(result.answers)
        start, _, distance = result.answers.T
        assert (distance % 2 == 1).all()
        np.testing.assert_array_equal(result.tokens[start], result.tokens[start - 1 - distance])


@pytest.mark.parametrize(
    ("band", "nearest", "farthest"), [((20, 80), 21, 79), ((4, 4), 5, 5), ((1, 1), 1, 1)]
)
def test_distances_lie_in_the_requested_range(band, nearest, farthest):
    """Keys are an even number of tokens apart, so distances are odd."""
    results = [document(600, band, number=number) for number in range(20)]
    distances = np.concatenate([result.answers[:, 2] for result in results])
    assert (distances.min(), distances.max()) == (nearest, farthest)


def test_distances_that_do_not_fit_become_others():
    """Every slot of 256 tokens is used, so at most half of the pairs can span 128 tokens."""
    result = document(256, (128, 253))
    assert len(result.answers) == 64
    assert 0.2 < (result.answers[:, 2] >= 128).mean() < 0.9


@pytest.mark.parametrize(
    "wanted", [[5, 1], [5, 5, 5], [1, 1, 1, 1], [7, 7, 1, 1], [4, 3, 2, 1], [2, 2, 2, 2]]
)
def test_placing_uses_no_slot_twice_and_keeps_distances_that_fit(wanted):
    slots = place_pairs(np.array(wanted), 8, np.random.default_rng(0))
    assert len(np.unique(slots)) == slots.size == 2 * len(wanted)
    assert slots.min() >= 0
    assert slots.max() < 8
    assert (slots[1] > slots[0]).all()
    assert (slots[1] - slots[0])[0] == wanted[0]  # the first always fits


def test_placing_falls_back_to_the_nearest_distance():
    # 7 takes slots 0 and 7. From the next free slot, 1, the longest distance is 5.
    slots = place_pairs(np.array([7, 7]), 8, np.random.default_rng(0))
    assert slots.T.tolist() == [[0, 7], [1, 6]]
    # 2 fits as (0, 2) or (1, 3); the other two slots are 2 apart, the nearest to 1.
    slots = place_pairs(np.array([2, 1]), 4, np.random.default_rng(0))
    assert sorted((slots[1] - slots[0]).tolist()) == [2, 2]
