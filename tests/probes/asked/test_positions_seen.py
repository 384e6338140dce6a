"""Pairs at a distance, counted where they are known."""

import types

import numpy as np
import pytest

from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from probes.asked import positions_seen
from probes.asked.positions_seen import pairs, training_pairs


@pytest.mark.parametrize("n", [1, 7, 64])
def test_one_document_of_n_tokens_has_n_less_m_pairs(n):
    assert pairs(np.ones(n, int)).tolist() == [n - m for m in range(n)]


def test_documents_are_counted_apart_and_padding_not():
    found = pairs(np.array([1, 1, 1, 2, 3, 3, 0, 0]))
    assert found.tolist() == [3 + 1 + 2, 2 + 1, 1, 0, 0, 0, 0, 0]


def test_half_of_all_pairs():
    """n - m of n: half of n (n + 1) / 2 is reached at m = n (1 - sqrt(1 / 2)), nearly."""
    counts_BM = np.tile(pairs(np.ones(1000, int)), (5, 1))
    found = positions_seen.positions_seen(counts_BM, 5, (250.0, 240.0, 260.0))
    np.testing.assert_allclose(found.half_3, 1000 * (1 - np.sqrt(0.5)), atol=1)
    assert found.at_l50 == pytest.approx(750 / 999)


def test_rows_of_every_stage_are_counted(monkeypatch):
    """Rows of stage 1 go on where stage 0 stopped, those of stage 2, of other data, begin anew."""
    config = change(find_config("tiny"), train=dict(num_steps=3), data=dict(batch_size=2))
    stages = (("train.num_steps=2",), ("data.context_length=32", "train.num_steps=4"))
    config = change(config, stages=stages)
    read = []

    class Rows:
        def __init__(self, length):
            self.length = length

        def __getitem__(self, number):
            read.append((self.length, number))
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
    counts_BM, num_rows = training_pairs(LoadedRun(directory, 6, config, {}))  # pyright: ignore
    assert read == [(64, row) for row in range(10)] + [(32, 0), (32, 1)]
    assert num_rows == 12
    assert counts_BM[:, 0].tolist() == [64] * 10 + [32] * 2
    # Of more than are counted, some.
    monkeypatch.setattr(positions_seen, "_ROWS", 4)
    read.clear()
    _, num_rows = training_pairs(LoadedRun(directory, 6, config, {}))  # pyright: ignore
    every = [(64, row) for row in range(10)] + [(32, 0), (32, 1)]
    assert len(read) == 4 and sorted(read, key=every.index) == read and len(set(read)) == 4
    assert num_rows == 12
