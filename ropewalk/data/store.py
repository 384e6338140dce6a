"""TokenStore: a stream of token ids on disk with random access.

    shard 00000                          shard 00001
    |block 0  |block 1  |block 2 |       |block 0  |...     blocks of 2048 ids: ArrayRecord records
    |B doc EB doc  EB do c EB doc E|     |B  doc  E|...     a document never crosses a shard

Token x of a shard is in its block x // 2048, so reading needs neither a search nor an index in
memory. `.starts.npy` of each shard holds the indices at which its documents start. BOS occurs at
the start of every document and nowhere else.
"""

import bisect
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.utils.errors import raise_outages
from ropewalk.utils.files import sync, write_atomically
from ropewalk.utils.limits import open_array
from ropewalk.utils.manifest import DamagedError, file_entries, read_manifest, write_manifest
from ropewalk.utils.paths import as_path

FORMAT = 1
BLOCK = 2048  # ids per record


class TokenStore:
    """A store for reading. Pickling copies only the path; worker processes open the files.

    Attributes:
      fingerprint: hex digest of the format, the tokenizer and every id in order.
      bos_id: first id of every document.
      num_tokens: ids in the store, BOS and EOS included.
      num_documents: documents in the store.

    Raises:
      ValueError: if `path` holds no store, its index is damaged, or a file is missing. Only
        `utils.manifest.find_damages` reads the content of the files.
    """

    def __init__(self, path: str | Path):
        self.path = as_path(path)
        path = self.path / "store.json"
        try:
            index = read_manifest(path)
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no token store there (no store.json)") from None
        try:
            _check_index(index)
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{path}: damaged: it is not the index of a store") from error
        self._shards = index["shards"]
        self.fingerprint, self.bos_id = index["fingerprint"], index["bos_id"]
        self._dtype = np.dtype(index["dtype"])
        for shard in self._shards:
            for file in _shard_files(self.path, shard["name"]):
                if not file.is_file():
                    raise DamagedError(f"{file}: missing")
        # Indices in the stream: the start of each shard, and the end of the stream.
        self._token_bounds = [0, *itertools.accumulate(s["tokens"] for s in self._shards)]
        self._document_bounds = [0, *itertools.accumulate(s["documents"] for s in self._shards)]
        self.num_tokens, self.num_documents = self._token_bounds[-1], self._document_bounds[-1]
        self._readers: dict[int, Any] = {}
        self._starts: dict[int, np.ndarray] = {}

    def __reduce__(self):
        return TokenStore, (self.path,)

    def read(self, start: int, length: int) -> np.ndarray:
        """Return ids start ... start + length - 1 of the stream, int32 `[length]`.

        Raises:
          IndexError: if the store is shorter.
          ValueError: if a record cannot be read.
        """
        if start < 0 or start + length > self.num_tokens:
            raise IndexError(
                f"ids {start}..{start + length} of a store of {self.num_tokens} ({self.path})"
            )
        stretch, filled = np.empty(length, np.int32), 0
        while filled < length:
            shard = bisect.bisect_right(self._token_bounds, start + filled) - 1
            within = start + filled - self._token_bounds[shard]
            count = min(length - filled, self._token_bounds[shard + 1] - start - filled)
            first, last = within // BLOCK, (within + count - 1) // BLOCK
            ids = np.frombuffer(self._records(shard, first, last + 1), self._dtype)
            stretch[filled : filled + count] = ids[within - first * BLOCK :][:count]
            filled += count
        return stretch

    def _records(self, shard: int, first: int, end: int) -> bytes:
        path, _ = _shard_files(self.path, self._shards[shard]["name"])
        try:
            with raise_outages(path):
                if shard not in self._readers:
                    self._readers[shard] = _open_records(path)
                return b"".join(self._readers[shard].read(list(range(first, end))))
        except (RuntimeError, ValueError, IndexError) as error:  # those of array_record's reader
            reason = (str(error).splitlines() or [""])[0][:100]
            raise DamagedError(f"{path}: damaged: a record cannot be read ({reason})") from None

    def document_span(self, document: int) -> tuple[int, int]:
        """Return the bounds of a document in the stream, the end excluded."""
        if not 0 <= document < self.num_documents:
            raise IndexError(f"document {document} of {self.num_documents} ({self.path})")
        shard = bisect.bisect_right(self._document_bounds, document) - 1
        before, shard_end = self._token_bounds[shard : shard + 2]
        within = document - self._document_bounds[shard]
        if shard not in self._starts:
            _, path = _shard_files(self.path, self._shards[shard]["name"])
            self._starts[shard] = _open_starts(path, self._shards[shard]["documents"])
        starts = self._starts[shard][within : within + 2].tolist()
        start, end = before + starts[0], before + starts[1] if len(starts) == 2 else shard_end
        if not before <= start < end <= shard_end:
            raise DamagedError(f"{self.path}: damaged: starts of documents outside of their shard")
        return start, end

    def document(self, document: int) -> np.ndarray:
        """Return the ids of one document, BOS to EOS, int32."""
        start, end = self.document_span(document)
        return self.read(start, end - start)


def _shard_files(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of a shard's ids and of the starts of its documents."""
    return folder / f"{name}.array_record", folder / f"{name}.starts.npy"


def _check_index(index: dict[str, Any]) -> None:
    """Raise one of several errors unless an index has all values, and names files in its folder."""
    is_valid = type(index["fingerprint"]) is str and type(index["bos_id"]) is int
    is_valid = is_valid and index["dtype"] in ("<u2", "<u4") and index["format"] == FORMAT
    for shard in index["shards"]:
        counts = [shard["tokens"], shard["documents"]]
        is_valid = is_valid and bool(re.fullmatch(r"\w+", shard["name"]))
        is_valid = is_valid and all(type(n) is int and 0 <= n < 2**48 for n in counts)
    if not is_valid:
        raise TypeError("values of another type or range")


def _open_starts(path: Path, documents: int) -> np.ndarray:
    try:
        array = open_array(path)
        if array.shape != (documents,) or array.dtype.kind not in "iu":
            raise ValueError
        return array
    except ValueError:
        raise DamagedError(f"{path}: damaged: not an array that can be read") from None


def _open_records(path: Path) -> Any:
    from array_record.python import array_record_module  # pyright: ignore

    # Options for random access: read only the requested records.
    return array_record_module.ArrayRecordReader(
        os.fsencode(str(path)), "readahead_buffer_size:0,max_parallelism:0"
    )


class ShardWriter:
    """Writer of one shard; its files get their names when it is complete.

    Attributes:
      num_tokens: ids written so far.
    """

    def __init__(self, folder: Path, name: str, vocab_size: int):
        self._name = name
        self._dtype = store_dtype(vocab_size)
        self._records, self._start_file = _shard_files(folder, name)
        self._part = self._records.with_suffix(".array_record.part")
        from array_record.python import array_record_module  # pyright: ignore

        self._writer = array_record_module.ArrayRecordWriter(
            os.fsencode(str(self._part)), "group_size:1,uncompressed"
        )
        self._pending = bytearray()
        self._starts: list[int] = []
        self._hash = hashlib.sha256()
        self.num_tokens = 0

    def append(self, ids: np.ndarray) -> None:
        """Add the ids of a document."""
        self._starts.append(self.num_tokens)
        self._pending += ids.astype(self._dtype).tobytes()
        self.num_tokens += len(ids)
        size = BLOCK * self._dtype.itemsize
        while len(self._pending) >= size:
            self._write(size)

    def _write(self, size: int) -> None:
        """Write the first pending bytes as a record."""
        record = bytes(self._pending[:size])
        self._hash.update(record)
        self._writer.write(record)
        del self._pending[:size]

    def discard(self) -> None:
        """Delete the unfinished shard."""
        self._writer.close()
        self._part.unlink()

    def finish(self) -> dict[str, Any] | None:
        """Complete the shard; return its entry for `write_index`, or None if it is empty."""
        if self._pending:
            self._write(len(self._pending))
        self._writer.close()
        if not self.num_tokens:
            self._part.unlink()
            return None
        starts = io.BytesIO()
        np.save(starts, np.array(self._starts, np.int64))
        write_atomically(self._start_file, starts.getvalue())
        sync(self._part)
        os.replace(self._part, self._records)
        return {
            "name": self._name,
            "tokens": self.num_tokens,
            "documents": len(self._starts),
            "sha256": self._hash.hexdigest(),  # of the ids, for the fingerprint
            "files": file_entries(self._records.parent, [self._records, self._start_file]),
        }


def store_dtype(vocab_size: int) -> np.dtype:
    """Return little-endian uint16 if all ids fit, else uint32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_index(folder: Path, shards: Sequence[dict], tokenizer: Tokenizer) -> None:
    """Write `store.json`, the manifest that makes the shards in `folder` a store.

    Args:
      folder: folder of the shards.
      shards: entries from `ShardWriter.finish`, in order.
      tokenizer: the tokenizer of the ids.
    """
    identity = [FORMAT, tokenizer.fingerprint, *(shard["sha256"] for shard in shards)]
    names = ("name", "tokens", "documents", "sha256")
    index = {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        "bos_id": tokenizer.bos_id,
        "dtype": store_dtype(tokenizer.vocab_size).str,
        "shards": [{name: shard[name] for name in names} for shard in shards],
    }
    files = {name: entry for shard in shards for name, entry in shard["files"].items()}
    write_manifest(folder / "store.json", index, files)
