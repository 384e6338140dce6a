"""JSON Lines files, compressed or not, read line by line.

A bad line is returned as a problem, so that the caller may continue after it.
"""

import functools
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from data.source import InputFile, OnBytes, ignore_bytes
from utils import limits
from utils.paths import as_path

JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_PATTERNS = ", ".join(f"*{suffix}" for suffix in JSONL_SUFFIXES)
_CHUNK = 1 << 17  # bytes read from disk at a time; they may decompress to many more
_VALIDATION_FILE = re.compile(r"(validation|val|test)(?![a-z])", re.IGNORECASE)


def jsonl_files(path: str | Path) -> list[InputFile]:
    """Return the .jsonl, .jsonl.gz and .jsonl.zst files at `path`, a file or a folder, by name.

    Files whose names start with "validation", "val" or "test" are validation files, unless all are.

    Raises:
      ValueError: if `path` does not exist or has no such file.
    """
    root = as_path(path)
    if root.is_file():
        if not root.name.endswith(JSONL_SUFFIXES):
            raise ValueError(f"{root}: not one of {_PATTERNS}")
        return [InputFile(path=root, name=root.name, size=root.stat().st_size)]
    if not root.is_dir():
        raise ValueError(f"{root}: no such file or folder")
    paths = sorted(p for p in root.rglob("*") if p.name.endswith(JSONL_SUFFIXES) and p.is_file())
    if not paths:
        raise ValueError(f"{root}: folder holds none of {_PATTERNS}")
    validation = [bool(_VALIDATION_FILE.match(p.name)) for p in paths]
    return [
        InputFile(
            path=p,
            name=p.relative_to(root).as_posix(),
            size=p.stat().st_size,
            validation=is_validation and not all(validation),
        )
        for p, is_validation in zip(paths, validation, strict=True)
    ]


def json_records(
    path: Path, *, start: int = 1, on_bytes: OnBytes = ignore_bytes
) -> Iterator[tuple[int, dict, str | None]]:
    """Yield line number, JSON object and problem (None if "text" is good) of each line of a file.

    Blank lines are skipped. Damage to compressed data is a problem of the line that it interrupts.
    """
    line, empty = 0, True
    try:
        for data in _lines(_chunks(path, on_bytes)):
            line += 1
            if data.strip():
                empty = False
                if line >= start:
                    yield line, *_json_record(data)
    except _DamagedError as error:
        yield line + 1, {}, str(error)
        return
    if empty:
        yield 1, {}, "file holds no document"


def _json_record(data: bytes) -> tuple[dict, str | None]:
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
    """Yield the lines of a .jsonl, .jsonl.gz or .jsonl.zst file; raise ValueError for damage."""
    try:
        yield from _lines(_chunks(path, ignore_bytes))
    except _DamagedError as error:
        raise ValueError(f"{path}: {error}") from None


class _DamagedError(Exception):
    """Compressed data that cannot be read to its end."""


def _chunks(path: Path, on_bytes: OnBytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in chunks of bounded size."""
    limits.check_file(path)
    with path.open("rb") as file:
        counted = _counted(file, on_bytes)
        if path.suffix == ".zst":
            import zstandard  # only .zst files need it

            make = zstandard.ZstdDecompressor().decompressobj
            yield from _decompressed(counted, make, zstandard.ZstdError)
        elif path.suffix == ".gz":
            make = functools.partial(zlib.decompressobj, wbits=31)
            yield from _decompressed(counted, make, zlib.error)
        else:
            yield from counted


def _counted(file: BinaryIO, on_bytes: OnBytes) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        on_bytes(len(data))
        yield data


def _decompressed(
    chunks: Iterator[bytes], make: Callable, damage: type[Exception]
) -> Iterator[bytes]:
    """Decompress chunks that hold one or more zstd frames or gzip members."""
    decompressor, is_complete, room = make(), True, limits.MOST_DECOMPRESSED
    pieces = (c[i : i + limits.PIECE] for c in chunks for i in range(0, len(c), limits.PIECE))
    for data in pieces:
        room += limits.MOST_RATIO * len(data)
        while data:
            try:
                decompressed = decompressor.decompress(data)
            except damage as error:
                raise _DamagedError(f"compressed data is damaged ({error})") from None
            room -= len(decompressed)
            if room < 0:
                raise _DamagedError(
                    f"decompresses to more than {limits.MOST_RATIO:,} times its bytes"
                )
            yield decompressed
            is_complete, data = decompressor.eof, decompressor.unused_data
            if is_complete:
                decompressor = make()
    if not is_complete:
        raise _DamagedError("file is cut short: it ends inside compressed data")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        size = len(last) + (0 if lines else size)
        if size > limits.MOST_JSON:
            raise _DamagedError(f"a line of more than {limits.MOST_JSON:,} bytes")
        for line in lines:
            yield b"".join([*rest, line]) if rest else line
            rest = []
        if last:
            rest.append(last)
    if rest:
        yield b"".join(rest)
