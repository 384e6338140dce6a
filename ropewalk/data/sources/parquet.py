"""Parquet files on disk, as the Hub stores datasets."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ropewalk.data.files import FileSource, Format, Record
from ropewalk.data.json_lines import describe_encoding, note_empty, text_problem
from ropewalk.data.source import OnBytes, ignore_bytes
from ropewalk.utils import limits
from ropewalk.utils.errors import raise_outages
from ropewalk.utils.messages import one_line

_ROWS = 256  # read at a time
_LABELS = {"red_pajama_subset": "red_pajama_subset", "meta": "meta.redpajama_set_name"}


def _records(
    path: Path, *, field: str = "text", start: int = 1, on_bytes: OnBytes = ignore_bytes
) -> Iterator[Record]:
    """Yield number (from 1), fields and problem of each row from row `start` on.

    A damaged row group is one problem, at its first row that cannot be read.
    """
    limits.check_file(path)
    size = rest = path.stat().st_size
    with path.open("rb") as file:
        try:
            with _raise_damage(path):
                reader = _open(path, file)
                columns = _columns(reader.schema_arrow, field)
                groups = [reader.metadata.row_group(i) for i in range(reader.num_row_groups)]
        except ValueError as error:
            on_bytes(size)
            yield 1, {"damaged_bytes": size}, f"{error}: a file of {size:,} bytes"
            return
        end = 1  # row after the last group
        for number, group in enumerate(groups):
            row, end = end, end + group.num_rows
            num_bytes = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            rest -= num_bytes
            on_bytes(num_bytes)
            if end <= start:
                continue
            try:
                with _raise_damage(path):
                    for batch in reader.iter_batches(_ROWS, [number], columns):
                        for record, problem in _rows(batch, field):
                            if row >= start:
                                yield row, record, problem
                            row += 1
            except ValueError as error:
                lost = f"row group {number} is damaged ({error}): {num_bytes:,} compressed bytes"
                if row >= start:
                    yield row, {"damaged_bytes": num_bytes}, lost
        on_bytes(rest)
        if end == 1:
            note_empty(path)


def _open(path: Path, file: BinaryIO) -> Any:
    try:
        import pyarrow.parquet  # slow to import
    except ImportError:
        raise ImportError(f"{path}: needs pyarrow; pip install 'ropewalk[parquet]'") from None
    return pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)


@contextlib.contextmanager
def _raise_damage(path: Path) -> Iterator[None]:
    """Turn an error of pyarrow, which has no number of the system, into a ValueError."""
    with raise_outages(path):
        try:
            yield
        except OSError as error:
            if error.errno is not None:
                raise
            raise ValueError(f"damaged Parquet ({one_line(str(error), 80)})") from error
        except (ValueError, NotImplementedError, KeyError) as error:
            raise ValueError(one_line(str(error), 120)) from error


def _columns(schema: Any, field: str) -> list[str]:
    """Return the columns to read; raise ValueError unless `field` is a column of text."""
    if field not in schema.names:
        raise ValueError(f'no column "{field}" (columns: {", ".join(schema.names)})')
    if (count := schema.names.count(field)) > 1:
        raise ValueError(f'{count} columns are named "{field}"; rename the others')
    if field not in (texts := _string_columns(schema)):
        others = ", ".join(texts) or "none"
        kind = schema.field(field).type
        raise ValueError(f'column "{field}" is {kind}, not a string (strings: {others})')
    return [field, *(label for name, label in _LABELS.items() if name in schema.names)]


def _string_columns(schema: Any) -> list[str]:
    """Return the names of the columns of strings."""
    from pyarrow import types

    kinds = {x.name: x.type.value_type if types.is_dictionary(x.type) else x.type for x in schema}
    is_text = (types.is_string, types.is_large_string, types.is_string_view)
    return [name for name, kind in kinds.items() if any(test(kind) for test in is_text)]


def _rows(batch: Any, field: str) -> Iterator[tuple[dict, str | None]]:
    """Yield fields and problem of each row of a batch."""
    import pyarrow

    texts = batch.column(field)
    if pyarrow.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    # As bytes: one text that is not UTF-8 is a problem of one document.
    contents = texts.cast(pyarrow.large_binary())
    labels = batch.drop_columns([field]).to_pylist()
    for content, record in zip(contents, labels, strict=True):
        yield _record(content.as_py(), record, field)


def _record(content: bytes | None, record: dict, field: str) -> tuple[dict, str | None]:
    if content is None:
        return {}, f'"{field}" is null, not a string'
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return {}, describe_encoding(error)
    return record | {field: text}, text_problem(text)


def _first(path: Path, field: str) -> dict:
    """Return the labels of the first row, "" for other columns of strings, and the other types."""
    with contextlib.suppress(ValueError), path.open("rb") as file, _raise_damage(path):
        reader = _open(path, file)
        texts = _string_columns(reader.schema_arrow)
        types = {x.name: "" if x.name in texts else x.type for x in reader.schema_arrow}
        labels = [label for name, label in _LABELS.items() if name in reader.schema_arrow.names]
        rows = reader.iter_batches(1, columns=labels) if labels else ()
        return types | next((batch.to_pylist()[0] for batch in rows), {})
    return {}


FORMAT = Format(
    title="Parquet", patterns="*.parquet", suffix="parquet", records=_records, first=_first
)


class Parquet(FileSource):
    """Parquet files with a column of text: .parquet."""

    has_fields = True
    formats = (FORMAT,)
