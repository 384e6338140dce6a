from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from ropewalk.data.mixture import Mixture
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
    N, count = store.num_tokens, rows.rows_per_epoch
    assert count == -(-N // 32)
    orders = []
    for epoch in range(3):
        starts = [rows.start(epoch * count + i) for i in range(count)]
        offset = next(s for s in starts if {(s + 32 * j) % N for j in range(count)} == {*starts})
        orders.append([(start - offset) % N for start in starts])
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_rows_hold_the_stream(store):
    stream = np.concatenate([store.document(i) for i in range(store.num_documents)])
    rows = TextRows(store, 32, seed=5)
    starts = [rows.start(i) for i in range(rows.rows_per_epoch)]
    for index in (0, 3, int(np.argmax(starts))):  # the last one goes on at the stream's beginning
        tokens = np.take(stream, range(starts[index], starts[index] + 32), mode="wrap")
        np.testing.assert_array_equal(rows[index]["tokens"], tokens)
    assert max(starts) + 32 > store.num_tokens


def test_order_is_pinned(store):
    """A change of this order changes the data of every resumed run."""
    rows = TextRows(store, 32, seed=0)
    assert [rows.start(i) for i in (0, 1, 2, 1000)] == [1508, 2779, 964, 5035]


@pytest.mark.parametrize("length", [2, 3, 6])
def test_every_pass_reads_every_id(length):
    """Each id but BOS is a target of every pass; at most a row's worth is one twice."""
    for num_tokens in range(length + 1, 3 * length + 2):
        ids = np.array([B, *range(3, 3 + num_tokens - 4), E, B, E], np.int32)[-num_tokens:]
        ids[0] = B
        stream = SimpleNamespace(
            num_tokens=num_tokens, bos_id=B, read=lambda start, n, ids=ids: ids[start:][:n]
        )
        rows = TextRows(stream, length, seed=0)  # pyright: ignore[reportArgumentType]
        for epoch in range(2):
            columns = [rows[epoch * rows.rows_per_epoch + i] for i in range(rows.rows_per_epoch)]
            read = Counter(id for x in columns for id in x["targets"][x["loss_mask"] > 0].tolist())
            assert not Counter(ids[ids != B].tolist()) - read
            assert sum(len(x["tokens"]) for x in columns) < num_tokens + length
            assert all(len(x["tokens"]) == length for x in columns)
        (note,) = Mixture([rows], [1.0]).notes(5 * num_tokens)  # rows of `length` ids each
        assert f"{5 * length} passes" in note
