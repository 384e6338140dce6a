"""Orders must equal grain's, because earlier runs were trained with those."""

import random

import grain
import pytest
from grain.experimental import index_shuffle

from data.shuffle import interleaved, shuffled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("count", [1, 2, 3, 17, 1000, 2**16, 2**16 + 1, 2**17 + 2, 10**9, 2**40])
def test_shuffled_is_grains(count):
    chosen = random.Random(count)
    for _ in range(50):
        index, seed = chosen.randrange(count), chosen.randrange(2**32)
        expected = index_shuffle(index, max_index=count - 1, seed=seed, rounds=4)
        assert shuffled(index, count, seed) == expected, (index, seed)


@pytest.mark.parametrize("count", [1, 5, 300])
def test_shuffled_is_a_permutation(count):
    assert sorted(shuffled(i, count, 7) for i in range(count)) == list(range(count))


@pytest.mark.parametrize("weights", [[1.0], [0.7, 0.1, 0.1, 0.1], [0.95, 0.05 / 3, 0.05], [3, 5]])
def test_interleaved_is_grains(weights):
    sources = [grain.MapDataset.source([(n, i) for i in range(400)]) for n in range(len(weights))]
    mixed = grain.MapDataset.mix(sources, weights)
    pairs = [interleaved(index, weights) for index in range(300)]
    assert pairs == [mixed[index] for index in range(300)]
