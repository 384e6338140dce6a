"""JSON Lines files, compressed or not, read line by line; `chunks` reads any compressed file.

A bad line is returned as a problem, so that the caller may continue after it. So is the rest of a
compressed file from a damaged member on: a gzip member or zstd frame that does not decompress, or
whose checksum differs. No document of the rest is returned.
"""

import contextlib
import functools
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ropewalk.data.source import OnBytes, ignore_bytes
from ropewalk.utils import limits
from ropewalk.utils.messages import print_note

_FIRST_LINES = 64  # of a file, that tell its fields
_CHUNK = 1 << 15  # bytes read from disk at a time; they may decompress to many more


def json_records(
    path: Path, *, field: str = "text", start: int = 1, on_bytes: OnBytes = ignore_bytes
) -> Iterator[tuple[int, dict, str | None]]:
    """Yield line number, JSON object and problem (None if `field` is good) of each line of a file.

    Blank lines are skipped. The damaged rest of a compressed file counts as one line; its object is
    {"damaged_bytes": its size}.
    """
    is_empty = True
    for line, data in enumerate(_lines(chunks(path, on_bytes)), 1):
        is_blank = not isinstance(data, Damage) and not data.strip()
        is_empty = is_empty and is_blank
        if is_blank or line < start:
            continue
        if isinstance(data, Damage):
            yield line, {"damaged_bytes": data.num_bytes} if data.num_bytes else {}, data.problem
        else:
            yield line, *_json_record(data, field)
    if is_empty:
        note_empty(path)


def note_empty(path: Path) -> None:
    """Print a note about a file without documents, which Spark and `datasets` write for a part."""
    print_note(path, f"{path} holds no document")


def first_record(path: Path, field: str = "text") -> dict:
    """Return the first JSON object whose `field` is a string, else the first one, or {}.

    Only the first lines are read, because a line may be bad. Their checksum is not read.
    """
    objects = []
    for data in itertools.islice(_lines(chunks(path, ignore_bytes, verify=False)), _FIRST_LINES):
        with contextlib.suppress(ValueError):
            record = None if isinstance(data, Damage) else _parse(data)
            objects += [record] if isinstance(record, dict) else []
            if objects and isinstance(objects[-1].get(field), str):
                return objects[-1]
    return objects[0] if objects else {}


def is_other(path: Path, field: str) -> bool:
    """Return whether a file named .json has other content than lines with a `field`.

    A file that is empty, or damaged from its start, has not.
    """
    if not re.search(r"\.json(\.|$)", path.name.lower()):
        return False
    head = next(filter(None, chunks(path, ignore_bytes, verify=False)), b"")
    is_array = isinstance(head, bytes) and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    return is_array or (bool(head) and field not in first_record(path, field))


def _parse(data: bytes) -> Any:
    return limits.parse_json(data.decode("utf-8-sig"))


def _json_record(data: bytes, field: str) -> tuple[dict, str | None]:
    try:
        record = _parse(data)
    except UnicodeDecodeError as error:
        return {}, describe_encoding(error)
    except ValueError as error:
        return {}, str(error)
    if not isinstance(record, dict) or field not in record:
        return {}, f'no "{field}" in this JSON line'
    if not isinstance(record[field], str):
        kind = "null" if record[field] is None else type(record[field]).__name__
        return {}, f'"{field}" is {kind}, not a string'
    return record, text_problem(record[field])


def describe_encoding(error: UnicodeDecodeError) -> str:
    """Describe bytes that are not UTF-8."""
    return f"broken UTF-8 at byte {error.start + 1}; convert the file to UTF-8"


def decode_text(content: bytes) -> tuple[str, str | None]:
    """Return the text of a file and its problem, if any."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return "", describe_encoding(error)
    return text, text_problem(text)


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


class Damage(NamedTuple):
    """A line that is too long, or the rest of a compressed file from a damaged member on.

    Attributes:
      problem: what is wrong.
      num_bytes: compressed bytes that are left out, with unknown documents; 0 for a line.
    """

    problem: str
    num_bytes: int = 0


class _Format(NamedTuple):
    """A format of compression: how to read one member."""

    decompressor: Callable[[], Any]
    error: type[Exception]
    padding: bytes = b""  # bytes that may be between members


def _format(path: Path, file: BinaryIO) -> _Format | None:
    """Return the compression of a file, None for plain text. Its first bytes decide, then its name.

    A browser may decompress a download and keep its name.
    """
    head = file.read(4)
    suffix = re.search(r"\.(gz|zst)(\.\d)?$", path.name.lower())
    name = suffix[1] if suffix and not _TEXT.match(head) else ""
    if head == _ZST or (name == "zst" and head[:3] != _GZIP):
        import zstandard  # only .zst files need it

        # The limit of `zstd --long=31`, as of Reddit's dumps; memory grows with the text.
        zstd = zstandard.ZstdDecompressor(max_window_size=2**31)
        return _Format(zstd.decompressobj, zstandard.ZstdError)
    if head[:3] == _GZIP or name == "gz":
        # Tapes and block devices fill the end with zeros, which gzip ignores.
        return _Format(functools.partial(zlib.decompressobj, wbits=31), zlib.error, b"\0")
    return None


_GZIP, _ZST = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_TEXT = re.compile(rb"\s*{|\xef\xbb\xbf|[\t\n\r -~]{4}")  # the first bytes of a text


def chunks(path: Path, on_bytes: OnBytes, *, verify: bool = True) -> Iterator[bytes | Damage]:
    """Yield the decompressed bytes of a file in chunks of bounded size.

    Args:
      path: the file.
      on_bytes: called with the number of bytes read from disk.
      verify: read a compressed file to its end first, so that no byte of a damaged member is
        yielded.
    """
    limits.check_file(path)
    status = path.stat()
    with path.open("rb") as file:
        compression = _format(path, file)
        if compression is None:
            yield from _read(file, 0, status.st_size, on_bytes)
            return
        end, problem = status.st_size, None
        if verify:
            end, problem = _find_damage(path, (end, status.st_mtime_ns))
        yield from _decompressed(_read(file, 0, end, on_bytes), compression)
        if problem:
            on_bytes(status.st_size - end)
            yield Damage(problem, status.st_size - end)


def _read(file: BinaryIO, start: int, end: int, on_bytes: OnBytes) -> Iterator[bytes]:
    while start < end:
        file.seek(start)  # the file may have been read elsewhere meanwhile
        if not (data := file.read(min(_CHUNK, end - start))):
            return
        start += len(data)
        on_bytes(len(data))
        yield data


def _decompressed(chunks: Iterable[bytes], compression: _Format) -> Iterator[bytes]:
    """Yield the content of zstd frames or gzip members, piece by piece; stop at damage."""
    with contextlib.suppress(compression.error):
        for data, _ in _decompress(chunks, compression):
            yield data


def _decompress(
    chunks: Iterable[bytes], compression: _Format
) -> Iterator[tuple[bytes, int | None]]:
    """Yield the content of members, and where the unfinished member starts; None between two."""
    decompressor, member, position = None, None, 0
    for data in chunks:
        position += len(data)
        while data := data if decompressor else data.lstrip(compression.padding):
            if decompressor is None:
                decompressor, member = compression.decompressor(), position - len(data)
                yield b"", member
            content, data = decompressor.decompress(data), decompressor.unused_data
            if decompressor.eof:
                decompressor = member = None
            yield content, member


@functools.lru_cache(maxsize=4096)
def _find_damage(path: Path, stamp: tuple[int, int]) -> tuple[int, str | None]:
    """Return where the first damaged member of a compressed file starts, and its problem.

    Without damage that is the end of the file. So it is if the file is cut short, because no
    checksum denies the lines before the cut.
    """
    size, member = stamp[0], None
    with path.open("rb") as file:
        compression = _format(path, file)
        assert compression
        try:
            for _, start in _decompress(_read(file, 0, size, ignore_bytes), compression):
                member = start
        except compression.error as error:
            start = member or 0
            rest = f"the {size - start:,} bytes from there on, with all documents in them, are lost"
            return start, f"compressed data is damaged after {start:,} bytes ({error}): {rest}"
    return size, None if member is None else "file is cut short: it ends inside compressed data"


def _lines(chunks: Iterable[bytes | Damage]) -> Iterator[bytes | Damage]:
    """Yield the lines of a file; a line that is interrupted by damage belongs to the damage."""
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk
            rest, size = [], 0
            continue
        *ends, last = chunk.split(b"\n")
        for end in ends:
            yield _join(rest, size, end)
            rest, size = [], 0
        size += len(last)
        if last and size <= limits.MAX_JSON:
            rest.append(last)
        elif size > limits.MAX_JSON:
            rest = []
    if size:
        yield _join(rest, size, b"")


def _join(parts: list[bytes], size: int, end: bytes) -> bytes | Damage:
    if size + len(end) > limits.MAX_JSON:
        return Damage(f"a line of more than {limits.MAX_JSON:,} bytes: it has {size + len(end):,}")
    return b"".join([*parts, end])
