"""Training rows: consecutive stretches of the stored stream of documents.

    stream     ... E|B a b c d E|B e f E|B g h i j k l ...      B, E: beginning, end of a document
    row              [b c d E B e f E]B                         T = 8 ids, and one more as target
    tokens            b c d E B e f E
    targets           c d E . e f E .                           . no target: the document ended
    positions         0 1 2 3 0 1 2 3                           from the document's or row's start
    segment_ids       1 1 1 1 2 2 2 2                           attention stays within one

The stream of N ids is a circle: the first document follows the last one. Rows of an epoch are
adjacent, so no id is lost or padded; the last row may read less than T ids again. Epoch e has an
offset o_e < N and a permutation: its row i reads ids o_e + j T ... o_e + j T + T, modulo N, where
j = permutation_e(i). Both follow from (seed, e), so every host or worker computes any row directly.
"""

import functools
import hashlib
import sys

import numpy as np

from ropewalk.data.store import TokenStore

VERSION = 2  # of the rule below: other rows of the same ids are other data
Row = dict[str, np.ndarray]  # the batch contract of `data`, without the batch axis


class TextRows:
    """Endless packed rows with random access.

    Attributes:
      name: what the text is called.
      rows_per_epoch: rows of a pass over the text.

    Raises:
      ValueError: if the text is shorter than one row.
    """

    def __init__(
        self, store: TokenStore, context_length: int, *, seed: int, name: str = "the text"
    ):
        self.name = name
        self._store, self._T, self._seed = store, context_length, seed
        if store.num_tokens <= context_length:
            raise ValueError(
                f"{store.path} ({self.name}) holds {store.num_tokens} ids, a row of "
                f"{context_length} needs {context_length + 1}; use more text, or a lower "
                "data.context_length"
            )
        self.rows_per_epoch = -(-store.num_tokens // context_length)

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> Row:
        start, size = self.start(index), self._T + 1
        ids = self._store.read(start, min(size, self._store.num_tokens - start))
        ids = np.concatenate([ids, self._store.read(0, size - len(ids))])
        return {name: column[0] for name, column in pack(ids[None], self._store.bos_id).items()}

    def epochs(self, num_rows: float) -> float:
        """Return the passes over the text that `num_rows` rows are."""
        return num_rows * self._T / self._store.num_tokens

    def start(self, index: int) -> int:
        """Return the index in the stream of the first id of row `index`."""
        from grain.experimental import index_shuffle  # slow to import

        epoch, i = divmod(index, self.rows_per_epoch)
        offset, order_seed = self._epoch(epoch)
        row = index_shuffle(i, max_index=self.rows_per_epoch - 1, seed=order_seed, rounds=4)
        return (offset + row * self._T) % self._store.num_tokens

    @functools.lru_cache(maxsize=64)  # noqa: B019 - a source lives as long as the process
    def _epoch(self, epoch: int) -> tuple[int, int]:
        digest = hashlib.blake2b(repr(("epoch", self._seed, epoch)).encode(), digest_size=12)
        offset = int.from_bytes(digest.digest()[:8], "little") % self._store.num_tokens
        return offset, int.from_bytes(digest.digest()[8:], "little")


def pack(ids: np.ndarray, bos_id: int) -> Row:
    """Split stretches of the stream into the columns of a batch.

    Args:
      ids: int32 `[B, T + 1]`.
      bos_id: first id of every document.

    Returns:
      tokens, targets, positions, segment_ids int32 and loss_mask float32, all `[B, T]`.
    """
    starts = ids == bos_id
    starts[:, 0] = True  # positions restart at a row's start, even inside a document
    index = np.arange(ids.shape[1] - 1, dtype=np.int32)
    last_start = np.maximum.accumulate(np.where(starts[:, :-1], index, 0), axis=1)
    counts = ~starts[:, 1:]
    return {
        "tokens": ids[:, :-1],
        "targets": np.where(counts, ids[:, 1:], 0).astype(np.int32),
        "positions": index - last_start,
        "segment_ids": np.cumsum(starts[:, :-1], axis=1, dtype=np.int32),
        "loss_mask": counts.astype(np.float32),
    }
