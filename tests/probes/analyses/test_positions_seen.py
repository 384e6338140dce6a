"""Pairs by distance of known rows."""

import numpy as np
import pytest

from ropewalk.probes.analyses.positions_seen import PositionsSeen, count_pairs
from ropewalk.probes.resample import quantile_distances


@pytest.mark.parametrize("n", [1, 7, 64])
def test_one_document_of_n_tokens_has_n_less_m_pairs(n):
    assert count_pairs(np.ones(n, int)).tolist() == [n - m for m in range(n)]


def test_pairs_of_two_documents_and_of_padding_are_not_counted():
    counts = count_pairs(np.array([1, 1, 1, 2, 3, 3, 0, 0]))
    assert counts.tolist() == [3 + 1 + 2, 2 + 1, 1, 0, 0, 0, 0, 0]


def test_half_of_all_pairs():
    """Half of n (n + 1) / 2 pairs, n - m at distance m, is reached near m = n (1 - sqrt(1 / 2))."""
    counts_BM = np.tile(count_pairs(np.ones(1000, int)), (5, 1))
    half_3 = quantile_distances(counts_BM, [0.5])[:, 0]
    np.testing.assert_allclose(half_3, 1000 * (1 - np.sqrt(0.5)), atol=1)
    result = PositionsSeen(seen_3M=counts_BM[:3], l50_3=np.array([250.0, 240.0, 260.0]))
    assert result.share_at_l50 == pytest.approx(750 / 999)
