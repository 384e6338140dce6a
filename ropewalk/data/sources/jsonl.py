"""JSON Lines files on disk."""

from ropewalk.data import json_lines
from ropewalk.data.files import FileSource, Format

FORMAT = Format(
    title="JSON Lines",
    patterns="*.jsonl, *.ndjson or *.json, each also with .gz or .zst",
    # wget appends a number if the file is there: Common Crawl's files in RedPajama, saved in one
    # folder, have the same names in every crawl.
    suffix=r"(jsonl|ndjson|json)(\.gz|\.zst|(?<=classifier\.jsonl)\.zst\.\d)?",
    records=json_lines.json_records,
    first=json_lines.first_record,
    is_other=json_lines.is_other,
)


class Jsonl(FileSource):
    """One JSON object with a "text" per line: .jsonl, .ndjson or .json, also with .gz or .zst."""

    has_fields = True
    formats = (FORMAT,)
