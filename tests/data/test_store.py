from types import SimpleNamespace

import numpy as np
import pytest

from ropewalk.data import store as store_lib
from ropewalk.data.store import BLOCK, TokenStore
from tests.damage import flip
from tests.data.helpers import B, E, make_store


@pytest.fixture
def documents():
    """Lengths around block boundaries, BOS and EOS included."""
    lengths = [0, 1, BLOCK - 3, BLOCK - 2, BLOCK - 1, 3 * BLOCK, 5]
    return [[3 + (i * 7 + j) % 250 for j in range(n)] for i, n in enumerate(lengths)]


@pytest.mark.parametrize(("shards", "vocab_size"), [(1, 300), (3, 70_000)])
def test_store_gives_back_what_was_written(tmp_path, documents, shards, vocab_size):
    store = make_store(tmp_path, documents, shards=shards, vocab_size=vocab_size)
    stream = np.concatenate([[B, *document, E] for document in documents])
    assert (store.num_documents, store.num_tokens) == (7, len(stream))
    for i, document in enumerate(documents):
        assert store.document(i).tolist() == [B, *document, E]
    for start in (0, 1, BLOCK - 1, BLOCK, len(stream) - BLOCK - 1, len(stream) - 1):
        for length in (1, 2, BLOCK, BLOCK + 1, len(stream)):
            if start + length <= len(stream):
                read = store.read(start, length)
                np.testing.assert_array_equal(read, stream[start : start + length])
                assert read.dtype == np.int32


def test_fingerprint_follows_the_ids_and_the_tokenizer(tmp_path, documents):
    fingerprint = make_store(tmp_path / "a", documents).fingerprint
    assert make_store(tmp_path / "b", documents).fingerprint == fingerprint
    assert make_store(tmp_path / "c", documents[::-1]).fingerprint != fingerprint
    shards = [shard | {"files": {}} for shard in make_store(tmp_path / "d", documents)._shards]
    other = SimpleNamespace(fingerprint="other", bos_id=B, vocab_size=300)
    store_lib.write_index(tmp_path / "d", shards, other)  # pyright: ignore
    assert TokenStore(tmp_path / "d").fingerprint != fingerprint


def test_a_changed_byte_is_found_and_the_file_named(tmp_path, documents):
    store = make_store(tmp_path, documents)
    path = tmp_path / "00000.array_record"
    flip(path, 8 * (path.read_bytes().index(store.read(BLOCK, 40).astype("<u2").tobytes()) + 20))
    with pytest.raises(ValueError, match=r"00000\.array_record: damaged"):
        TokenStore(tmp_path).read(BLOCK, 40)
