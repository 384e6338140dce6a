"""The same books in every layout."""

import os
import types

import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.datasets.pg19 import pg19_dataset_builder

from ropewalk.data.pg19 import test_books as read_books

# In the order of ids, which differs from the order of names.
BOOKS = [(2544, "Zwei é\nlines"), (10146, "Reminiscences of\n\npioneer days")]


@pytest.fixture
def published(tmp_path):
    """DeepMind's bucket: a folder per split, a file per book, white space around the texts."""
    root = tmp_path / "published"
    others = [("train", 7, "training"), ("validation", 8, "validation")]
    for split, book_id, text in (*others, *(("test", *book) for book in BOOKS)):
        (root / split).mkdir(parents=True, exist_ok=True)
        (root / split / f"{book_id}.txt").write_text(f"\n\n{text}\n", "utf-8")
    lines = [f"{i},Title,1908,url\n" for i in (7, 8, 2544, 10146)]
    (root / "metadata.csv").write_text("".join(lines))
    return root


@pytest.fixture
def tfds_dir(published, tmp_path, monkeypatch):
    """The folder of TFDS' builder, run with Python's files instead of TensorFlow's."""
    files = types.SimpleNamespace(GFile=open, listdir=os.listdir)
    fake = types.SimpleNamespace(io=types.SimpleNamespace(gfile=files))
    monkeypatch.setattr(pg19_dataset_builder, "tf", fake)
    monkeypatch.setattr(pg19_dataset_builder, "_DATA_DIR", str(published))
    # There are no downloads; see data/redpajama. (monkeypatch would evaluate the old value.)
    pg19_dataset_builder.Builder.url_infos = None
    tfds.disable_progress_bar()

    options = {"file_format": "array_record"}
    builder = pg19_dataset_builder.Builder(data_dir=tmp_path / "tfds", **options)
    builder.download_and_prepare(**options)
    return tmp_path / "tfds"


@pytest.mark.parametrize("layout", ["published", "tfds_dir"])
def test_books_of_either_layout(layout, request):
    folder = request.getfixturevalue(layout)
    assert [(book.id, book.text) for book in read_books(str(folder))] == BOOKS
