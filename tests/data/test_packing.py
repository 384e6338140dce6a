import numpy as np
import pytest

from ropewalk.data.packing import TextRows, pack
from tests.data.helpers import B, E, make_store


def test_packed_row_is_the_picture_in_the_docstring():
    b, c, d, e, f = range(10, 15)
    row = pack(np.array([[b, c, d, E, B, e, f, E, B]], np.int32), B)
    assert row["tokens"].tolist() == [[b, c, d, E, B, e, f, E]]
    assert row["targets"].tolist() == [[c, d, E, 0, e, f, E, 0]]
    assert row["positions"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]
    assert row["segment_ids"].tolist() == [[1, 1, 1, 1, 2, 2, 2, 2]]
    assert row["loss_mask"].tolist() == [[1, 1, 1, 0, 1, 1, 1, 0]]
    assert all(x.dtype == ("float32" if n == "loss_mask" else "int32") for n, x in row.items())
    row = pack(np.array([[5, B, B, 6, 7]], np.int32), B)  # a document of one id
    assert row["segment_ids"].tolist() == [[1, 2, 3, 3]]
    assert row["positions"].tolist() == [[0, 0, 0, 1]]
    assert row["loss_mask"].tolist() == [[0, 0, 1, 1]]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    documents = [list(range(3, 3 + 17 * (i % 9))) for i in range(120)]
    return make_store(tmp_path_factory.mktemp("store"), documents, shards=3)


def test_every_epoch_reads_every_row_once_in_its_own_order(store):
    rows = TextRows(store, 32, seed=5)
    orders = []
    for epoch in range(3):
        starts = [rows.start(epoch * rows.rows_per_epoch + i) for i in range(rows.rows_per_epoch)]
        offset = min(starts)
        assert 0 <= offset < 32
        assert sorted(starts) == [offset + 32 * j for j in range(rows.rows_per_epoch)]
        assert max(starts) + 33 <= store.num_tokens
        # All but two rows' worth of ids (the offset and the ragged end) are used.
        assert rows.rows_per_epoch * 32 > store.num_tokens - 3 * 32
        orders.append([start - offset for start in starts])
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_rows_hold_the_stream(store):
    stream = np.concatenate([store.document(i) for i in range(store.num_documents)])
    rows = TextRows(store, 32, seed=5)
    for index in (0, 3, 10 * rows.rows_per_epoch + 1):
        start = rows.start(index)
        np.testing.assert_array_equal(rows[index]["tokens"], stream[start : start + 32])


def test_order_is_pinned(store):
    """A change of this order changes the data of every resumed run."""
    rows = TextRows(store, 32, seed=0)
    assert [rows.start(i) for i in (0, 1, 2, 1000)] == [1054, 1278, 7710, 4986]


@pytest.mark.parametrize("num_tokens", [33, 34, 64, 65, 97])
def test_stores_of_one_or_two_rows_work(tmp_path, num_tokens):
    store = make_store(tmp_path, [list(range(3, 3 + num_tokens - 2))])
    rows = TextRows(store, 32, seed=0)
    for i in range(40):
        assert rows[i]["tokens"].shape == (32,)
