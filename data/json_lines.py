"""JSON Lines files, compressed or not, read line by line.

A bad line is returned as a problem, so that the caller may continue after it. A compressed file
that does not decompress, or whose checksums differ, is one problem: no document of it is returned.
"""

import functools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from data.source import OnBytes, ignore_bytes
from utils import limits

PATTERNS = "*.jsonl, *.ndjson or *.json, each also with .gz or .zst"
# wget appends a number if the file is there: Common Crawl's files in RedPajama, saved in one
# folder, have the same names in every crawl.
_NAME = re.compile(
    r"(?P<file>(?P<stem>.*)\.(jsonl|ndjson|json))(\.gz|\.zst|(?<=classifier\.jsonl)\.zst\.\d)?",
    re.IGNORECASE | re.DOTALL,
)
_CHUNK = 1 << 17  # bytes read from disk at a time; they may decompress to many more


def stem_of(name: str) -> str | None:
    """Return the name of a JSON Lines file without its suffixes, or None for another file."""
    match = _NAME.fullmatch(name)
    return match["stem"] if match else None


def without_compression(name: str) -> str:
    """Return the name of a JSON Lines file without the suffix of its compression."""
    match = _NAME.fullmatch(name)
    return match["file"] if match and not name[-1].isdigit() else name


def json_records(
    path: Path, *, start: int = 1, on_bytes: OnBytes = ignore_bytes
) -> Iterator[tuple[int, dict, str | None]]:
    """Yield line number, JSON object and problem (None if "text" is good) of each line of a file.

    Blank lines are skipped. A damaged compressed file counts as one line.
    """
    damage, is_empty = _find_damage(path), True
    if damage:
        size = path.stat().st_size
        on_bytes(size)
        if start == 1:
            yield 1, {}, f"{damage}: {size:,} compressed bytes, with all documents in them"
        return
    for line, data in enumerate(_lines(_chunks(path, on_bytes)), start=1):
        if data.strip():
            is_empty = False
            if line >= start:
                yield line, *_json_record(data)
    if is_empty and start == 1:
        yield 1, {}, "file holds no document"


def first_record(path: Path) -> dict:
    """Return the JSON object of the first line of a file; {} if it is none."""
    try:
        records = filter(bytes.strip, _lines(_chunks(path, ignore_bytes)))
        return _json_record(next(records, b""))[0]
    except ValueError:  # damaged
        return {}


def _json_record(data: bytes) -> tuple[dict, str | None]:
    if len(data) > limits.MOST_JSON:
        return {}, f"a line of more than {limits.MOST_JSON:,} bytes"
    try:
        record = limits.parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return {}, f"broken UTF-8 at byte {error.start + 1} of the line"
    except ValueError as error:
        return {}, str(error)
    if not isinstance(record, dict) or "text" not in record:
        return {}, 'no "text" in this JSON line'
    if not isinstance(record["text"], str):
        return {}, f'"text" is {type(record["text"]).__name__}, not a string'
    return record, text_problem(record["text"])


def text_problem(text: str) -> str | None:
    """Return the problem of an empty text or one with a lone surrogate, which JSON allows."""
    if not text or text.isspace():
        return "empty document"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"text is not Unicode: lone surrogate at character {error.start + 1}"
    return None


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a JSON Lines file; raise ValueError for damage."""
    if damage := _find_damage(path):
        raise ValueError(f"{path}: {damage}")
    yield from _lines(_chunks(path, ignore_bytes))


class _Format(NamedTuple):
    """A format of compression: how to read one gzip member or zstd frame."""

    decompressor: Callable[[], Any]
    error: type[Exception]


def _format(path: Path, file: BinaryIO) -> _Format | None:
    """Return the compression of a file, None for plain text. Its first bytes decide, then its name.

    A browser may decompress a download and keep its name.
    """
    head = file.read(4)
    suffix = re.search(r"\.(gz|zst)(\.\d)?$", path.name.lower())
    name = suffix[1] if suffix and head.lstrip()[:1] not in (b"{", b"\xef") else ""
    if head == _ZST or (name == "zst" and head[:3] != _GZIP):
        import zstandard  # only .zst files need it

        return _Format(zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError)
    if head[:3] == _GZIP or name == "gz":
        return _Format(functools.partial(zlib.decompressobj, wbits=31), zlib.error)
    return None


_GZIP, _ZST = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"


def _find_damage(path: Path) -> str:
    """Return what is wrong with a compressed file, which is read to its end; "" for other files."""
    limits.check_file(path)
    status = path.stat()
    return _find_damage_once(path, (status.st_size, status.st_mtime_ns or status.st_mtime))


@functools.lru_cache(maxsize=4096)
def _find_damage_once(path: Path, stamp: tuple) -> str:
    with path.open("rb") as file:
        if _format(path, file) is None:
            return ""
    try:
        for _ in _chunks(path, ignore_bytes):
            pass
    except ValueError as error:
        return str(error)
    return ""


def _chunks(path: Path, on_bytes: OnBytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in chunks of bounded size.

    Args:
      path: the file.
      on_bytes: called with the number of bytes read from disk.

    Raises:
      ValueError: at damage, without the path.
    """
    limits.check_file(path)
    with path.open("rb") as file:
        compression = _format(path, file)
        file.seek(0)
        chunks = _read(file, on_bytes)
        yield from _decompress(chunks, compression) if compression else chunks


def _read(file: BinaryIO, on_bytes: OnBytes) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        on_bytes(len(data))
        yield data


def _decompress(chunks: Iterable[bytes], compression: _Format) -> Iterator[bytes]:
    """Yield the content of zstd frames or gzip members, piece by piece."""
    decompressor, is_complete = compression.decompressor(), True
    room = limits.MOST_DECOMPRESSED  # bytes of text, besides MOST_RATIO times those of the file
    for data in (c[i : i + limits.PIECE] for c in chunks for i in range(0, len(c), limits.PIECE)):
        room += limits.MOST_RATIO * len(data)
        while data:
            try:
                content = decompressor.decompress(data)
            except compression.error as error:
                raise ValueError(f"compressed data is damaged ({error})") from None
            room -= len(content)
            if room < 0:
                raise ValueError(f"decompresses to more than {limits.MOST_RATIO:,} times its size")
            yield content
            data, is_complete = decompressor.unused_data, decompressor.eof
            if is_complete:
                decompressor = compression.decompressor()
    if not is_complete:
        raise ValueError("file is cut short: it ends inside compressed data")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of a line above `MOST_JSON` bytes only one byte more than that."""
    line = bytearray()
    for chunk in chunks:
        *ends, last = chunk.split(b"\n")
        for end in ends:
            yield b"".join((line, end))[: limits.MOST_JSON + 1]
            line.clear()
        line += last[: limits.MOST_JSON + 1 - len(line)]
    if line:
        yield bytes(line)
