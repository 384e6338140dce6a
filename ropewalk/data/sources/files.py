"""All text files at a path, whatever their formats."""

from ropewalk.data.files import FileSource
from ropewalk.data.sources import jsonl, parquet, txt


class Files(FileSource):
    """All files of the formats of jsonl, parquet and txt."""

    has_fields = True
    formats = (jsonl.FORMAT, parquet.FORMAT, txt.FORMAT)
