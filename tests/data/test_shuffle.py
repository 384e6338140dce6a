"""The order of grain's mixtures, which is computed without them: a release must not change it."""

import grain
import pytest

from ropewalk.data.mixture import interleaved


@pytest.mark.parametrize("weights", [[1.0], [0.7, 0.1, 0.1, 0.1], [0.95, 0.05 / 3, 0.05], [3, 5]])
def test_interleaved_is_grains(weights):
    sources = [grain.MapDataset.source([(n, i) for i in range(400)]) for n in range(len(weights))]
    mixed = grain.MapDataset.mix(sources, weights)
    pairs = [interleaved(index, weights) for index in range(300)]
    assert pairs == [mixed[index] for index in range(300)]
