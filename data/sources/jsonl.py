"""JSON Lines files on disk."""

import re

from ropewalk.data import json_lines
from ropewalk.data.files import FileSource, Format

FORMAT = Format(
    title="JSON Lines",
    patterns=json_lines.PATTERNS,
    stem=json_lines.stem_of,
    records=json_lines.json_records,
    first=json_lines.first_record,
    may_be_other=lambda name: bool(re.search(r"\.json(\.|$)", name, re.IGNORECASE)),
)


class Jsonl(FileSource):
    """One JSON object with a "text" per line: .jsonl, .ndjson or .json, also with .gz or .zst."""

    has_fields = True
    formats = (FORMAT,)
