"""Reader of PG-19's test split: 100 books of Project Gutenberg, as published or from TFDS.

    DIR/pg19/0.1.1/                    tensorflow-datasets, prepared as array_record
    DIR/test/10146.txt ...             DeepMind's files (beside them metadata.csv, not needed)

DeepMind's files are at github.com/google-deepmind/pg19. The builder writes array_record with
`tfds build pg19 --file_format=array_record`, which needs TensorFlow; reading it does not.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from ropewalk.utils.paths import as_path


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
        return sorted(_from_tfds(root))
    return sorted(_from_text(root))


def _missing(where: str) -> ValueError:
    return ValueError(
        f"{where}: no PG-19 test split; give path=DIR with pg19/0.1.1/ (tensorflow-datasets, "
        "array_record) or test/10146.txt ... (DeepMind's files) in it"
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
