"""JSON Lines files on disk."""

import functools
from collections.abc import Iterator

from ropewalk.data.files import Listing, list_json_lines
from ropewalk.data.json_lines import first_record, json_records
from ropewalk.data.source import SUBSETS, Document, InputFile, LeftOut, OnBytes, Source


class Jsonl(Source):
    """One JSON object with a "text" per line: .jsonl, .ndjson or .json, also with .gz or .zst."""

    needs_path = True

    @functools.cached_property
    def _listing(self) -> Listing:
        return list_json_lines(str(self.path))

    @property
    def files(self) -> list[InputFile]:
        """Files at `data.path`."""
        return self._listing.files

    @property
    def left_out(self) -> list[LeftOut]:
        """Other files at `data.path`."""
        return self._listing.left_out

    def read_file(self, file: int, line: int, on_bytes: OnBytes) -> Iterator[Document]:
        """Yield a document per line."""
        records = json_records(self.files[file].path, start=line, on_bytes=on_bytes)
        for number, record, problem in records:
            text = "" if problem else record["text"]
            damaged = record.get("damaged_bytes", 0) if problem else 0
            yield Document(text, file, number, _subset(record), problem, damaged)

    def subsets(self) -> set[str]:
        """Return RedPajama's subsets and, for a private corpus, the first label of each file."""
        records = (first_record(file.path) for file in self.files)
        return set(SUBSETS) | {label for label in map(_subset, records) if label}


def _subset(record: dict) -> str | None:
    """Return RedPajama's subset; its releases store it in two fields."""
    meta = record.get("meta")
    subset = record.get("red_pajama_subset")
    if subset is None and isinstance(meta, dict):
        subset = meta.get("redpajama_set_name")
    return subset if isinstance(subset, str) else None
