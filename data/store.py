"""TokenStore: one long stream of token ids on disk, any stretch of it in constant time.

    shard 00000                          shard 00001
    |block 0  |block 1  |block 2 |       |block 0  |...     blocks of 2048 ids: ArrayRecord records
    |B doc EB doc  EB do c EB doc E|     |B  doc  E|...     a document never crosses a shard

Token x of a shard lies in its block x // 2048, so nothing is searched and nothing is kept in
memory. Beside each shard, `.starts.npy` holds where its documents begin. BOS stands at the start
of every document and nowhere else.
"""

import bisect
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.files import DamagedError, read_checksummed, write_checksummed
from data.threads import map_ahead, num_cpus
from data.tokenizer import Tokenizer
from settings.checks import Count, check
from settings.places import in_bucket, place, telling_outages

FORMAT = 1
BLOCK = 2048  # ids a record


class TokenStore:
    """Reads a store. Cheap to pickle: worker processes open the files themselves.

    Attributes:
      fingerprint: hex digest of the format, the tokenizer and every id in order.
      bos_id: the id that starts every document.
      num_tokens: ids in the store, BOS and EOS included.
      num_documents: documents in the store.

    Raises:
      ValueError: if `path` holds no store, or its index is damaged, or one of its files is missing,
        cut short or changed in size. What is in them is read by `damages` only.
    """

    def __init__(self, path: str | Path):
        self.path = place(path)
        path = self.path / "store.json"
        try:
            index = self._index = read_checksummed(path)
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no token store there (no store.json)") from None
        if index.get("format") != FORMAT:
            raise ValueError(
                f"{self.path}: store format {index.get('format')}, this version reads {FORMAT}; "
                "prepare the data again"
            )
        try:
            self._shards = [Shard(**entry) for entry in index["shards"]]
            self.fingerprint, self.bos_id = str(index["fingerprint"]), int(index["bos_id"])
            self._dtype = np.dtype(index["dtype"])
        except (KeyError, TypeError, ValueError):
            raise DamagedError(f"{path}: damaged: not the index of a store") from None
        for shard in self._shards:
            for name, size in shard.bytes.items():
                _check_size(self.path / name, size)
        # In the stream: where each shard begins, and at last where the stream ends.
        self._token_bounds = [0, *itertools.accumulate(s.tokens for s in self._shards)]
        self._document_bounds = [0, *itertools.accumulate(s.documents for s in self._shards)]
        self.num_tokens, self.num_documents = self._token_bounds[-1], self._document_bounds[-1]
        self._readers: dict[int, Any] = {}
        self._starts: dict[int, np.ndarray] = {}

    def __reduce__(self):
        return TokenStore, (self.path,)

    def read(self, start: int, length: int) -> np.ndarray:
        """int32 `[length]`: ids start .. start + length - 1 of the stream.

        Raises:
          IndexError: if they are not all in the store.
          ValueError: naming the file, if a record cannot be read.
        """
        if start < 0 or start + length > self.num_tokens:
            raise IndexError(
                f"ids {start}..{start + length} of a store of {self.num_tokens} ({self.path})"
            )
        found, filled = np.empty(length, np.int32), 0
        while filled < length:
            shard = bisect.bisect_right(self._token_bounds, start + filled) - 1
            within = start + filled - self._token_bounds[shard]
            count = min(length - filled, self._shards[shard].tokens - within)
            first, last = within // BLOCK, (within + count - 1) // BLOCK
            ids = np.frombuffer(self._records(shard, first, last + 1), self._dtype)
            found[filled : filled + count] = ids[within - first * BLOCK :][:count]
            filled += count
        return found

    def _records(self, shard: int, first: int, end: int) -> bytes:
        info = self._shards[shard]
        path = self.path / info.records
        try:
            with telling_outages(path):
                if shard not in self._readers:
                    self._readers[shard] = _open_records(path, info.tokens, self._dtype)
                return b"".join(self._readers[shard].read(list(range(first, end))))
        except _UNREADABLE as error:
            raise DamagedError(_unreadable(path, error)) from None

    def document_span(self, document: int) -> tuple[int, int]:
        """Where a document begins and ends in the stream."""
        if not 0 <= document < self.num_documents:
            raise IndexError(f"document {document} of {self.num_documents} ({self.path})")
        shard = bisect.bisect_right(self._document_bounds, document) - 1
        info, before = self._shards[shard], self._token_bounds[shard]
        within = document - self._document_bounds[shard]
        if shard not in self._starts:
            self._starts[shard] = _open_starts(self.path / info.starts)
        starts = self._starts[shard]
        end = starts[within + 1] if within + 1 < info.documents else info.tokens
        return before + int(starts[within]), before + int(end)

    def document(self, document: int) -> np.ndarray:
        """int32: the ids of one document, from its BOS to its EOS."""
        start, end = self.document_span(document)
        return self.read(start, end - start)

    def damages(
        self, tokenizer: Tokenizer, on_bytes: Callable[[int], None] = lambda count: None
    ) -> Iterator[str]:
        """What is not as it was written, a sentence a file: all of the store is read for it.

        Of stores made before indices had a digest too: all that an index says follows from the ids
        and the tokenizer.

        Args:
          tokenizer: what gave the ids.
          on_bytes: told how many bytes of ids were read, as they are, by several threads.
        """
        said = _index([dataclasses.asdict(shard) for shard in self._shards], tokenizer)
        if wrong := [name for name in said if said[name] != self._index[name]]:
            yield (
                f"{self.path / 'store.json'}: damaged: its {wrong[0]} is not that of its shards "
                "and the tokenizer"
            )
        look = functools.partial(self._shard_damage, on_bytes=on_bytes)
        num_threads = num_cpus()
        found = map_ahead(look, self._shards, num_threads=num_threads, ahead=2 * num_threads)
        yield from filter(None, found)

    def _shard_damage(self, shard: "Shard", on_bytes: Callable[[int], None]) -> str | None:
        path = self.path / shard.records
        digest, num_ids, starts = hashlib.sha256(), 0, []
        num_records = -(-shard.tokens // BLOCK)
        try:
            with telling_outages(path):
                reader = _open_records(path, shard.tokens, self._dtype)
                for first in range(0, num_records, _READ_AT_ONCE):
                    numbers = range(first, min(first + _READ_AT_ONCE, num_records))
                    records = b"".join(reader.read(list(numbers)))
                    digest.update(records)
                    ids = np.frombuffer(records, self._dtype)
                    starts.append(num_ids + np.flatnonzero(ids == self.bos_id))
                    num_ids += len(ids)
                    on_bytes(len(records))
        except _UNREADABLE as error:
            return _unreadable(path, error)
        if digest.hexdigest() != shard.sha256 or num_ids != shard.tokens:
            return f"{path}: damaged: the ids are not those that were written"
        try:
            recorded = _open_starts(self.path / shard.starts)
        except DamagedError as error:
            return error.what
        if not np.array_equal(np.concatenate(starts), recorded) or len(recorded) != shard.documents:
            return f"{self.path / shard.starts}: damaged: not where the documents begin"
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """What `store.json` says of a shard.

    Attributes:
      name: of its files, without what tells them apart.
      tokens, documents: in it.
      sha256: of its ids, as they are stored.
      bytes: sizes of its files, by their names.
    """

    name: str
    tokens: Count
    documents: Count
    sha256: str
    bytes: dict[str, int]

    def __post_init__(self):
        check(self)
        if set(self.bytes) != {self.records, self.starts}:
            raise ValueError(f"bytes must be those of {self.records} and {self.starts}")

    @property
    def records(self) -> str:
        """The file of ids."""
        return f"{self.name}.array_record"

    @property
    def starts(self) -> str:
        """The file of where documents begin."""
        return f"{self.name}.starts.npy"


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise DamagedError(f"{path}: missing") from None
    if found != size:
        raise DamagedError(f"{path}: {found} bytes where {size} were written")


_READ_AT_ONCE = 1024  # records
_UNREADABLE = (RuntimeError, ValueError, IndexError)  # what readers of records raise


def _unreadable(path: Path, error: Exception) -> str:
    reason = (str(error).splitlines() or [""])[0][:100]
    return f"{path}: damaged: a record cannot be read ({reason})"


def _open_starts(path: Path) -> np.ndarray:
    try:
        if in_bucket(path):
            return np.load(io.BytesIO(path.read_bytes()))
        return np.load(path, mmap_mode="r")
    except OSError:
        raise
    except Exception:  # numpy reads the header as Python: a damaged one can raise nearly anything
        raise DamagedError(f"{path}: damaged: not an array that can be read") from None


def _open_records(path: Path, num_tokens: int, dtype: np.dtype) -> Any:
    """What reads a shard's records: array_record, or where there is none, `_PlainRecords`."""
    try:
        from array_record.python import array_record_module  # pyright: ignore
    except ImportError:
        return _PlainRecords(path, num_tokens * dtype.itemsize, BLOCK * dtype.itemsize)
    # Options for random access: read no more than was asked for.
    return array_record_module.ArrayRecordReader(
        str(path), "readahead_buffer_size:0,max_parallelism:0"
    )


class _PlainRecords:
    """Records of the shards written here, read without array_record and its check of their hashes.

    A file is a string of chunks, the first empty, then one a record: 40 bytes of header, 2 and a
    varint that give its size, its bytes. Cut into that string at every 64 KiB of the file, from its
    start on, are 24 bytes of the file's own.
    """

    def __init__(self, path: Path, num_bytes: int, record_bytes: int):
        self._file = np.memmap(path, np.uint8, "r")
        self._num_bytes, self._record_bytes = num_bytes, record_bytes

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Records by their numbers, all but the last `record_bytes` long."""
        return [self._read(number) for number in numbers]

    def _read(self, number: int) -> bytes:
        size = min(self._record_bytes, self._num_bytes - number * self._record_bytes)
        varint_bytes = 1 if size < 128 else 2
        start = 40 + number * (44 + self._record_bytes) + 42 + varint_bytes
        place = np.arange(start, start + size)
        return self._file[place + 24 * (place // (2**16 - 24) + 1)].tobytes()


class ShardWriter:
    """Writes one shard; its files appear under their names only when it is complete.

    Attributes:
      num_tokens: ids written so far.
    """

    def __init__(self, folder: Path, name: str, vocab_size: int):
        self._folder, self._name = folder, name
        self._dtype = store_dtype(vocab_size)
        self._part = folder / f"{name}.array_record.part"
        # Late: who only reads need not have it.
        from array_record.python import array_record_module  # pyright: ignore

        self._writer = array_record_module.ArrayRecordWriter(
            str(self._part), "group_size:1,uncompressed"
        )
        self._pending: list[np.ndarray] = []
        self._num_pending = 0
        self._starts: list[int] = []
        self._hash = hashlib.sha256()
        self.num_tokens = 0

    def append(self, ids: np.ndarray, *, new_document: bool) -> None:
        """Adds ids: a document's first, or more of the last one."""
        if new_document:
            self._starts.append(self.num_tokens)
        self._pending.append(ids.astype(self._dtype))
        self._num_pending += len(ids)
        self.num_tokens += len(ids)
        if self._num_pending >= 64 * BLOCK:
            self._write(self._num_pending // BLOCK * BLOCK)

    def _write(self, count: int) -> None:
        """Writes the first `count` pending ids as records."""
        pending = np.concatenate([*self._pending, np.empty(0, self._dtype)])
        for start in range(0, count, BLOCK):
            record = pending[start : min(start + BLOCK, count)].tobytes()
            self._hash.update(record)
            self._writer.write(record)
        self._pending, self._num_pending = [pending[count:]], len(pending) - count

    def discard(self) -> None:
        """Leaves nothing of the unfinished shard."""
        self._writer.close()
        self._part.unlink()

    def finish(self) -> dict | None:
        """Completes the shard and returns its entry for `write_index`; None if it is empty."""
        self._write(self._num_pending)
        self._writer.close()
        if not self.num_tokens:
            self._part.unlink()
            return None
        starts = self._folder / f"{self._name}.starts.npy"
        part = starts.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, np.array(self._starts, np.int64))
        records = self._folder / f"{self._name}.array_record"
        os.replace(part, starts)
        os.replace(self._part, records)
        return {
            "name": self._name,
            "tokens": self.num_tokens,
            "documents": len(self._starts),
            "sha256": self._hash.hexdigest(),
            "bytes": {path.name: path.stat().st_size for path in (records, starts)},
        }


def store_dtype(vocab_size: int) -> np.dtype:
    """Little-endian uint16 where ids fit, else uint32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_index(folder: Path, shards: Sequence[dict], tokenizer: Tokenizer) -> None:
    """Writes `store.json`, which makes the shards in `folder` a store.

    Args:
      folder: where the shards are.
      shards: entries from `ShardWriter.finish`, in order.
      tokenizer: what gave the ids.
    """
    write_checksummed(folder / "store.json", _index(shards, tokenizer))


def _index(shards: Sequence[dict], tokenizer: Tokenizer) -> dict[str, Any]:
    identity = [FORMAT, tokenizer.fingerprint, *(shard["sha256"] for shard in shards)]
    return {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        "bos_id": tokenizer.bos_id,
        "dtype": store_dtype(tokenizer.vocab_size).str,
        "shards": list(shards),
    }
