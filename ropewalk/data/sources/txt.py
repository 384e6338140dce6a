"""Plain text files on disk."""

from collections.abc import Iterator
from pathlib import Path

from ropewalk.data.files import FileSource, Format, Record
from ropewalk.data.json_lines import Damage, chunks, decode_text, note_empty
from ropewalk.data.source import OnBytes, ignore_bytes
from ropewalk.utils.messages import counted, print_note


def _records(
    path: Path, *, field: str = "text", start: int = 1, on_bytes: OnBytes = ignore_bytes
) -> Iterator[Record]:
    """Yield the text of a file as one document, or the problem with it."""
    if start > 1:
        return
    parts = []
    for part in chunks(path, on_bytes):
        if isinstance(part, Damage):
            yield 1, {"damaged_bytes": part.num_bytes}, part.problem
            return
        parts.append(part)
    content = b"".join(parts)
    parts.clear()  # a long text is in memory once
    if not content or content.isspace():
        note_empty(path)
        return
    text, problem = decode_text(content)
    del content
    if count := text.count(_SEPARATOR):
        what = "between documents? A .txt file is one document; write each as a JSON line"
        print_note(path, f"{path} has {_SEPARATOR} {counted(count, 'times')}, {what}")
    # UTF-16 without its mark is valid UTF-8, as is the hole that a stopped download left.
    problem = _NULS if 100 * text.count("\0") > len(text) else problem
    texts = [text]
    del text
    yield 1, {field: texts.pop()}, problem


_SEPARATOR = "<|endoftext|>"  # between the documents of some published files, as TinyStories
_NULS = "many NUL characters; convert the file to UTF-8, or download it again"
FORMAT = Format(
    title="plain text",
    patterns="*.txt, also with .gz or .zst",
    suffix=r"txt(\.gz|\.zst)?",
    records=_records,
    is_document=True,
)


class Txt(FileSource):
    """Plain text, one document per file: .txt, also with .gz or .zst."""

    formats = (FORMAT,)
