"""Orders of grain that runs were trained with: another release must not change them."""

import grain
import pytest
from grain.experimental import index_shuffle

from ropewalk.data.mixture import interleaved


@pytest.mark.parametrize(
    ("count", "seed", "expected"),  # of elements 0, 1, count // 3 and count - 1
    [
        (1, 5, [0, 0, 0, 0]),
        (2, 1, [1, 0, 1, 0]),
        (17, 0, [15, 4, 3, 16]),
        (1000, 7, [687, 904, 269, 677]),
        (10**9, 2**32 - 1, [251802617, 129721388, 670594570, 10851047]),
    ],
)
def test_the_order_of_rows_is_pinned(count, seed, expected):
    indices = (0, min(1, count - 1), count // 3, count - 1)
    order = [index_shuffle(i, max_index=count - 1, seed=seed, rounds=4) for i in indices]
    assert order == expected


@pytest.mark.parametrize("weights", [[1.0], [0.7, 0.1, 0.1, 0.1], [0.95, 0.05 / 3, 0.05], [3, 5]])
def test_interleaved_is_grains(weights):
    sources = [grain.MapDataset.source([(n, i) for i in range(400)]) for n in range(len(weights))]
    mixed = grain.MapDataset.mix(sources, weights)
    pairs = [interleaved(index, weights) for index in range(300)]
    assert pairs == [mixed[index] for index in range(300)]
