"""Documents read from files, one at a time, each with the place it came from.

What is wrong with a document is part of it (`problem`), so that the reader can go on and whoever
reads decides: `prepare` stops, or leaves it out and says so.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from data.config import DataConfig
from settings.places import place

JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_KINDS = ", ".join(f"*{suffix}" for suffix in JSONL_SUFFIXES)
SUBSETS = ("arxiv", "book", "c4", "common_crawl", "github", "stackexchange", "wikipedia")
# The names that RedPajama's files, its dataset card and SlimPajama use for these subsets.
SUBSET_NAMES = {name: name for name in SUBSETS} | {
    "books": "book",
    "cc": "common_crawl",
    "RedPajamaArXiv": "arxiv",
    "RedPajamaBook": "book",
    "RedPajamaC4": "c4",
    "RedPajamaCommonCrawl": "common_crawl",
    "RedPajamaGithub": "github",
    "RedPajamaStackExchange": "stackexchange",
    "RedPajamaWikipedia": "wikipedia",
}
LISTED = 100  # documents left out whose problems are listed; the rest are counted
LOCAL_BYTES = 4 << 20  # of the standard library's source: real text, prepared in seconds
_CHUNK = 1 << 17  # bytes on disk read at a time; they may unpack to many more
_VALIDATION_FILE = re.compile(r"(validation|val|test)(?![a-z])", re.IGNORECASE)


class Document(NamedTuple):
    """One document, or what is wrong with it.

    Attributes:
      text: never empty, always valid Unicode; "" where there is a problem.
      file: index into the list of input files.
      line: line of the file, from 1.
      subset: RedPajama's name for the kind of text, if the document says it.
      problem: what is wrong; None if nothing is.
    """

    text: str
    file: int
    line: int
    subset: str | None = None
    problem: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file of documents.

    Attributes:
      path: where it is.
      name: its name relative to the folder it was found in.
      size: bytes on disk.
      validation: whether it is a validation file by its name.
    """

    path: Path
    name: str
    size: int
    validation: bool = False


def jsonl_files(path: str | Path) -> list[InputFile]:
    """The .jsonl, .jsonl.gz and .jsonl.zst files at `path`, a file or a folder, by name.

    Files whose names start with "validation", "val" or "test" are validation data, unless all do.

    Raises:
      ValueError: if there is nothing at `path`, or no such file in it.
    """
    root = place(path)
    if root.is_file():
        if not root.name.endswith(JSONL_SUFFIXES):
            raise ValueError(f"{root}: not one of {_KINDS}")
        return [InputFile(path=root, name=root.name, size=root.stat().st_size)]
    if not root.is_dir():
        raise ValueError(f"{root}: no such file or folder")
    found = sorted(p for p in root.rglob("*") if p.name.endswith(JSONL_SUFFIXES) and p.is_file())
    if not found:
        raise ValueError(f"{root}: folder holds none of {_KINDS}")
    held_out = [bool(_VALIDATION_FILE.match(p.name)) for p in found]
    return [
        InputFile(
            path=p,
            name=p.relative_to(root).as_posix(),
            size=p.stat().st_size,
            validation=validation and not all(held_out),
        )
        for p, validation in zip(found, held_out, strict=True)
    ]


def check_source(config: DataConfig) -> str:
    """Return one line about the files of `config`'s text, found by their names; none is read.

    Raises:
      ValueError: if there is nothing at `data.path`, or no such file in it.
    """
    if config.path is None:
        return "needs no data.path"
    if config.source in ("local", "retrieval"):
        if not place(config.path).exists():
            raise ValueError(f"data.path={config.path}: no such file or folder")
        return f"does not read data.path={config.path}; give data.source=jsonl if it should"
    files = jsonl_files(config.path)
    size = sum(file.size for file in files)
    return f"{len(files)} file(s) at data.path={config.path}, {size / 2**20:,.1f} MiB"


@functools.cache  # to walk over all that is installed takes a second
def local_files() -> list[InputFile]:
    """Some megabytes of the running interpreter's own standard library: the same files every time.

    Raises:
      ValueError: if this Python comes without the source of its library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - skipped  # not walked through: most of what is installed
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    found.sort()
    # In order of a hash of their names: a sample of the whole library, not its first letters.
    found.sort(key=lambda p: hashlib.sha256(p.relative_to(root).as_posix().encode()).digest())
    chosen, total = [], 0
    for path in found:
        data = path.read_bytes()
        if total + len(data) <= LOCAL_BYTES and not _plain_document(0, data).problem:
            total += len(data)
            name = path.relative_to(root).as_posix()
            chosen.append(InputFile(path=path, name=name, size=len(data)))
    if not chosen:
        raise ValueError(
            f"{root}: no .py files; this Python has no library source, use --source jsonl"
        )
    return sorted(chosen, key=lambda file: file.name)


def read_documents(
    files: list[InputFile],
    *,
    start: tuple[int, int] = (0, 1),
    on_bytes: Callable[[int], None] = lambda count: None,
) -> Iterator[Document]:
    """Documents in order, from place `start` (file index, line) on.

    Args:
      on_bytes: told how many bytes were read from disk, as they are.
    """
    for index in range(start[0], len(files)):
        path = files[index].path
        if path.name.endswith(".py"):
            on_bytes(files[index].size)
            yield _plain_document(index, path.read_bytes())
            continue
        first = start[1] if index == start[0] else 1
        for line, record, problem in json_records(path, start=first, on_bytes=on_bytes):
            if problem is None:
                yield Document(text=record["text"], file=index, line=line, subset=subset_of(record))
            else:
                yield Document(text="", file=index, line=line, problem=problem)


def json_records(
    path: Path, *, start: int = 1, on_bytes: Callable[[int], None] = lambda count: None
) -> Iterator[tuple[int, dict, str | None]]:
    """Line number, JSON object and problem (None: it has a good "text") of each line of a file.

    Blank lines are passed over. Damage to the file itself is a problem of the line it cuts.
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
        record = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return {}, f"broken UTF-8 at byte {error.start + 1} of the line"
    except ValueError as error:
        return {}, f"not JSON ({error})"
    except RecursionError:
        return {}, "not JSON that can be read (nested too deep)"
    if not isinstance(record, dict) or "text" not in record:
        return {}, 'no "text" in this JSON line'
    if not isinstance(record["text"], str):
        return {}, f'"text" is {type(record["text"]).__name__}, not a string'
    return record, text_problem(record["text"])


def _plain_document(file: int, data: bytes) -> Document:
    try:
        text = data.decode("utf-8-sig")
        problem = text_problem(text)
    except UnicodeDecodeError as error:
        text, problem = "", f"broken UTF-8 at byte {error.start + 1}"
    return Document(text="" if problem else text, file=file, line=1, problem=problem)


def text_problem(text: str) -> str | None:
    """What is wrong with a text: nothing in it, or half of a surrogate pair (JSON allows it)."""
    if not text or text.isspace():
        return "empty document"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"text is not Unicode: lone surrogate at character {error.start + 1}"
    return None


def subset_of(record: dict) -> str | None:
    """RedPajama's subset, wherever the releases put it."""
    meta = record.get("meta")
    subset = record.get("red_pajama_subset")
    if subset is None and isinstance(meta, dict):
        subset = meta.get("redpajama_set_name")
    return subset if isinstance(subset, str) else None


def lines(path: Path) -> Iterator[bytes]:
    """Lines of a .jsonl, .jsonl.gz or .jsonl.zst file; raises ValueError if it is damaged."""
    try:
        yield from _lines(_chunks(path, lambda count: None))
    except _DamagedError as error:
        raise ValueError(f"{path}: {error}") from None


class _DamagedError(Exception):
    """A compressed file that cannot be read to its end."""


def _chunks(path: Path, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """The decompressed bytes of a file, a bounded piece at a time."""
    with path.open("rb") as file:
        counted = _counted(file, on_bytes)
        if path.suffix == ".zst":
            import zstandard  # who has no such files need not have it

            make = zstandard.ZstdDecompressor().decompressobj
            yield from _decompressed(counted, make, zstandard.ZstdError)
        elif path.suffix == ".gz":
            make = functools.partial(zlib.decompressobj, wbits=31)
            yield from _decompressed(counted, make, zlib.error)
        else:
            yield from counted


def _counted(file: BinaryIO, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        on_bytes(len(data))
        yield data


def _decompressed(
    chunks: Iterator[bytes], make: Callable, damage: type[Exception]
) -> Iterator[bytes]:
    """Unpacks; zstd frames and gzip members may follow one another, as `cat a.gz b.gz` makes."""
    unpacker, whole = make(), True
    for data in chunks:
        while data:
            try:
                unpacked = unpacker.decompress(data)
            except damage as error:
                raise _DamagedError(f"compressed data is damaged ({error})") from None
            yield unpacked
            whole, data = unpacker.eof, unpacker.unused_data
            if whole:
                unpacker = make()
    if not whole:
        raise _DamagedError("file is cut short: it ends inside compressed data")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        for line in lines:
            yield b"".join([*rest, line]) if rest else line
            rest = []
        if last:
            rest.append(last)
    if rest:
        yield b"".join(rest)
