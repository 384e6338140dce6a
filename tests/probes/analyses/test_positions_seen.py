"""Pairs by distance of known rows."""

import types

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from probes.analyses import positions_seen
from probes.analyses.positions_seen import count_pairs, count_training_pairs


@pytest.mark.parametrize("n", [1, 7, 64])
def test_one_document_of_n_tokens_has_n_less_m_pairs(n):
    assert count_pairs(np.ones(n, int)).tolist() == [n - m for m in range(n)]


def test_pairs_of_two_documents_and_of_padding_are_not_counted():
    counts = count_pairs(np.array([1, 1, 1, 2, 3, 3, 0, 0]))
    assert counts.tolist() == [3 + 1 + 2, 2 + 1, 1, 0, 0, 0, 0, 0]


def test_half_of_all_pairs():
    """Half of n (n + 1) / 2 pairs, n - m at distance m, is reached near m = n (1 - sqrt(1 / 2))."""
    counts_BM = np.tile(count_pairs(np.ones(1000, int)), (5, 1))
    result = positions_seen.positions_seen(counts_BM, 5, (250.0, 240.0, 260.0))
    np.testing.assert_allclose(result.half_3, 1000 * (1 - np.sqrt(0.5)), atol=1)
    assert result.share_at_l50 == pytest.approx(750 / 999)


def test_rows_of_every_stage_are_counted(monkeypatch):
    """Stage 1 continues the rows of stage 0; stage 2 has other data and starts at row 0."""
    config = change(find_config("tiny"), train=dict(num_steps=3), data=dict(batch_size=2))
    stages = (("train.num_steps=2",), ("data.context_length=32", "train.num_steps=4"))
    config = change(config, stages=stages)
    rows_read = []

    class Rows:
        def __init__(self, length):
            self.length = length

        def __getitem__(self, number):
            rows_read.append((self.length, number))
            return {"segment_ids": np.ones(self.length, int)}

    def open_data(data):
        return types.SimpleNamespace(
            fingerprint="f", open_rows=lambda split: Rows(data.context_length)
        )

    monkeypatch.setattr(positions_seen, "open_data", open_data)
    monkeypatch.setattr(
        positions_seen, "read_items", lambda *_: ({"data": {"fingerprint": "f"}}, None)
    )
    directory = types.SimpleNamespace(config=config)
    counts_BM, num_rows = count_training_pairs(LoadedRun(directory, 6, config, {}))  # pyright: ignore
    assert rows_read == [(64, row) for row in range(10)] + [(32, 0), (32, 1)]
    assert num_rows == 12
    assert counts_BM[:, 0].tolist() == [64] * 10 + [32] * 2
    # With a smaller limit, a sample.
    monkeypatch.setattr(positions_seen, "_MAX_ROWS", 4)
    rows_read.clear()
    _, num_rows = count_training_pairs(LoadedRun(directory, 6, config, {}))  # pyright: ignore
    all_rows = [(64, row) for row in range(10)] + [(32, 0), (32, 1)]
    assert (
        len(rows_read) == 4
        and sorted(rows_read, key=all_rows.index) == rows_read
        and len(set(rows_read)) == 4
    )
    assert num_rows == 12
