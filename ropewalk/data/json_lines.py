"""JSON Lines files, compressed or not, read line by line; `chunks` reads any compressed file.

A bad line is returned as a problem, so that the caller may continue after it. So is a damaged
member of a compressed file: a gzip member or zstd frame that does not decompress, or whose checksum
differs. No document of it is returned, and reading goes on at the next intact member.
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

_FIRST_LINES = 64  # of a file, that tell its fields
_CHUNK = 1 << 17  # bytes read from disk at a time; they may decompress to many more


def json_records(
    path: Path, *, field: str = "text", start: int = 1, on_bytes: OnBytes = ignore_bytes
) -> Iterator[tuple[int, dict, str | None]]:
    """Yield line number, JSON object and problem (None if `field` is good) of each line of a file.

    Blank lines are skipped. A damaged member of a compressed file counts as one line; its object is
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
        yield 1, {}, "file holds no document"


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
    """A line that is too long, or a damaged member of a compressed file.

    Attributes:
      problem: what is wrong.
      num_bytes: compressed bytes that are left out, with unknown documents; 0 for a line.
    """

    problem: str
    num_bytes: int = 0


class _Format(NamedTuple):
    """A format of compression: its first bytes, and how to read one member."""

    magic: bytes
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
        return _Format(_ZST, zstd.decompressobj, zstandard.ZstdError)
    if head[:3] == _GZIP or name == "gz":
        # Tapes and block devices fill the end with zeros, which gzip ignores.
        return _Format(_GZIP, functools.partial(zlib.decompressobj, wbits=31), zlib.error, b"\0")
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
        stamp = (status.st_size, status.st_mtime_ns)
        position = 0
        for start, end, problem in _find_damages(path, stamp) if verify else ():
            yield from _decompressed(_read(file, position, start, on_bytes), compression)
            on_bytes(end - start)
            yield Damage(problem, end - start)
            position = end
        yield from _decompressed(_read(file, position, status.st_size, on_bytes), compression)


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
    decompressor = None
    with contextlib.suppress(compression.error):
        for data in _pieces(chunks):
            while data := data if decompressor else data.lstrip(compression.padding):
                decompressor = decompressor or compression.decompressor()
                yield decompressor.decompress(data)
                data = decompressor.unused_data
                decompressor = None if decompressor.eof else decompressor


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return (c[i : i + limits.PIECE] for c in chunks for i in range(0, len(c), limits.PIECE))


_CUT_SHORT = "file is cut short: it ends inside compressed data"
_BOMB = "decompresses to more than"


@functools.lru_cache(maxsize=4096)
def _find_damages(path: Path, stamp: tuple) -> list[tuple[int, int, str]]:
    """Return start, end and problem of each damaged stretch of a compressed file.

    A stretch begins with a damaged member and ends before the next intact one. A file that is cut
    short has an empty stretch at its end: no checksum denies the lines before it.
    """
    size, start = stamp[0], 0
    stretches: list[tuple[int, int, str]] = []
    with path.open("rb") as file:
        compression = _format(path, file)
        while compression and start < size:
            start, problem = _find_damage(file, start, size, compression)
            if problem == _CUT_SHORT:
                return [*stretches, (size, size, problem)]
            if problem:
                is_bomb = problem.startswith(_BOMB)
                end = size if is_bomb else _find_intact(file, start + 1, size, compression)
                lost = f"{problem}: {end - start:,} compressed bytes, with all documents in them"
                stretches.append((start, end, lost))
                start = end
    return stretches


def _find_damage(
    file: BinaryIO, start: int, size: int, compression: _Format
) -> tuple[int, str | None]:
    """Return where the first damaged member starts, and its problem.

    Args:
      file: a compressed file.
      start: start of a member.
      size: size of the file, which is returned if no member is damaged.
      compression: format of the file.
    """
    decompressor, member, position = None, start, start
    room = limits.MOST_DECOMPRESSED  # bytes of text, besides MOST_RATIO times those of the file
    for piece in _pieces(_read(file, start, size, ignore_bytes)):
        data, position = piece, position + len(piece)
        room += limits.MOST_RATIO * len(data)
        while data := data if decompressor else data.lstrip(compression.padding):
            if decompressor is None:
                decompressor, member = compression.decompressor(), position - len(data)
            try:
                room -= len(decompressor.decompress(data))
            except compression.error as error:
                return member, f"compressed data is damaged ({error})"
            if room < 0:
                return member, f"{_BOMB} {limits.MOST_RATIO:,} times its size"
            data = decompressor.unused_data
            decompressor = None if decompressor.eof else decompressor
    return (member, _CUT_SHORT) if decompressor else (size, None)


def _find_intact(file: BinaryIO, start: int, size: int, compression: _Format) -> int:
    """Return where the next intact member starts; the size of the file if there is none."""
    overlap = len(compression.magic) - 1
    tail = b""
    for data in _read(file, start, size, ignore_bytes):
        data = tail + data
        for match in re.finditer(re.escape(compression.magic), data):
            candidate = start - len(tail) + match.start()
            if _find_damage(file, candidate, size, compression)[0] > candidate:
                return candidate
        start += len(data) - len(tail)
        tail = data[-overlap:]
    return size


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
        if last and size <= limits.MOST_JSON:
            rest.append(last)
        elif size > limits.MOST_JSON:
            rest = []
    if size:
        yield _join(rest, size, b"")


def _join(parts: list[bytes], size: int, end: bytes) -> bytes | Damage:
    if size + len(end) > limits.MOST_JSON:
        return Damage(f"a line of more than {limits.MOST_JSON:,} bytes: it has {size + len(end):,}")
    return b"".join([*parts, end])
