"""Reader of PG-19's test split: 100 books of Project Gutenberg, as published or from TFDS.

    DIR/pg19/0.1.1/                    tensorflow-datasets, prepared as array_record
    DIR/test/10146.txt ...             DeepMind's files (beside them metadata.csv, not needed)
    DIR/test.jsonl, or the file        {"text": ..., "url": "http://www.gutenberg.org/ebooks/10146"}
                                       per line (url may be in "meta"); .gz and .zst too

DeepMind's files are at github.com/google-deepmind/pg19. The builder writes array_record with
`tfds build pg19 --file_format=array_record`, which needs TensorFlow; reading it does not.
"""

import logging
import re
from pathlib import Path
from typing import NamedTuple

from data.json_lines import json_records, stem_of
from utils.paths import as_path

_URL = re.compile(r"/(\d+)/?$")


class Book(NamedTuple):
    """One book.

    Attributes:
      id: number at Project Gutenberg.
      text: stripped of surrounding white space, as in the builder.
    """

    id: int
    text: str


def test_books(path: str | None) -> list[Book]:
    """Return the test split in the order of book ids.

    Args:
      path: a folder in one of the layouts above; None: the folder of tensorflow-datasets.

    Raises:
      ValueError: if there are no books, or one cannot be read.
    """
    root = None if path is None else as_path(path)
    if root is None or (root / "pg19").is_dir():
        books = _from_tfds(root)
    elif root.is_file():
        books = _from_jsonl(root)
    else:
        files = (file for file in sorted(root.glob("test.*")) if stem_of(file.name) == "test")
        jsonl = next(filter(Path.is_file, files), None)
        books = _from_jsonl(jsonl) if jsonl else _from_text(root)
    by_id = {book.id: book for book in books}
    if len(by_id) < len(books):
        raise ValueError(f"{path}: {len(books) - len(by_id)} books have the id of another one")
    return [by_id[book_id] for book_id in sorted(by_id)]


def _missing(where: str) -> ValueError:
    return ValueError(
        f"{where}: no PG-19 test split; give path=DIR with pg19/0.1.1/ (tensorflow-datasets, "
        "array_record), test/10146.txt ... (DeepMind's files) or test.jsonl[.gz|.zst] in it"
    )


def _from_tfds(data_dir: Path | None) -> list[Book]:
    import tensorflow_datasets as tfds  # slow to import

    logging.getLogger("absl").setLevel(logging.ERROR)  # its warning repeats the error below
    builder = tfds.builder("pg19", data_dir=data_dir)
    if not builder.is_prepared():
        raise _missing(str(builder.data_path))
    try:
        source = builder.as_data_source("test")  # pyright: ignore[reportCallIssue]
    except NotImplementedError:
        raise ValueError(
            f"{builder.data_path}: not prepared as array_record, and only TensorFlow reads the "
            "rest; prepare it again with --file_format=array_record"
        ) from None
    records = (source[i] for i in range(len(source)))
    return [Book(id=int(r["book_id"]), text=r["book_text"].decode()) for r in records]


def _from_text(root: Path) -> list[Book]:
    files = [file for file in (root / "test").glob("*.txt") if file.stem.isdecimal()]
    if not files:
        raise _missing(str(root))
    return [Book(id=int(file.stem), text=_read(file)) for file in files]


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: broken UTF-8 at byte {error.start + 1}") from None


def _from_jsonl(file: Path) -> list[Book]:
    if stem_of(file.name) is None:
        raise _missing(str(file))
    books = []
    for line, record, problem in json_records(file):
        meta = record.get("meta")
        url = record.get("url") or (meta.get("url") if isinstance(meta, dict) else None)
        match = _URL.search(str(url))
        if problem or not match:
            problem = problem or 'no "url" that ends in the id of a book'
            raise ValueError(f"{file}:{line}: {problem}")
        books.append(Book(id=int(match[1]), text=record["text"].strip()))
    return books
