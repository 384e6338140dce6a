from typing import Any

import numpy as np
import pytest

from data.config import DataConfig
from data.slots import place
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
    """Results that are stored stay comparable: ids as they came out of version 1."""
    made = document(16, split="validation")
    assert made.tokens.tolist() == [
        *(99, 62, 104, 57, 78, 11, 127, 11, 127, 57, 78, 62, 104, 58, 66, 58, 66)
    ]
    assert made.answers.tolist() == [[8, 1, 1], [10, 1, 5], [12, 1, 9], [16, 1, 1]]


@pytest.mark.parametrize("length", [4, 9, 64, 257, 1000])
def test_every_key_is_said_twice_in_slots_of_two(length):
    for number in range(20):
        made = document(length, number=number)
        keys = made.tokens[made.tokens < 64]
        _, counts = np.unique(keys, return_counts=True)
        assert counts.tolist() == [2] * min(64, length // 4) == [2] * len(made.answers)
        start, _, distance = made.answers.T
        assert (distance % 2 == 1).all()
        np.testing.assert_array_equal(made.tokens[start], made.tokens[start - 1 - distance])


@pytest.mark.parametrize(
    ("band", "nearest", "farthest"), [((20, 80), 21, 79), ((4, 4), 5, 5), ((1, 1), 1, 1)]
)
def test_questions_stand_at_the_distances_asked_for(band, nearest, farthest):
    """Keys stand two tokens apart: distances are odd."""
    made = [document(600, band, number=number) for number in range(20)]
    distances = np.concatenate([each.answers[:, 2] for each in made])
    assert (distances.min(), distances.max()) == (nearest, farthest)


def test_distances_that_do_not_fit_become_others():
    """Every slot of 256 tokens is used: no more than half of the keys can stand half as far."""
    made = document(256, (128, 253))
    assert len(made.answers) == 64
    assert 0.2 < (made.answers[:, 2] >= 128).mean() < 0.9


@pytest.mark.parametrize(
    "wished", [[5, 1], [5, 5, 5], [1, 1, 1, 1], [7, 7, 1, 1], [4, 3, 2, 1], [2, 2, 2, 2]]
)
def test_placing_uses_no_slot_twice_and_keeps_distances_that_fit(wished):
    slots = place(np.array(wished), 8, np.random.default_rng(0))
    assert len(np.unique(slots)) == slots.size == 2 * len(wished)
    assert slots.min() >= 0
    assert slots.max() < 8
    assert (slots[1] > slots[0]).all()
    assert (slots[1] - slots[0])[0] == wished[0]  # the first always fits


def test_placing_falls_back_to_the_nearest_distance():
    # 7 takes slots 0 and 7; another 7 cannot be: from the first free slot, 1, the farthest is 6.
    slots = place(np.array([7, 7]), 8, np.random.default_rng(0))
    assert slots.T.tolist() == [[0, 7], [1, 6]]
    # 2 fits as (0, 2) or (1, 3); what is left is 2 apart, as near to 1 as there is.
    slots = place(np.array([2, 1]), 4, np.random.default_rng(0))
    assert sorted((slots[1] - slots[0]).tolist()) == [2, 2]
