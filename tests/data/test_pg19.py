"""The same books in every layout."""

import json
import os
import types

import pytest
import tensorflow_datasets as tfds
import zstandard
from tensorflow_datasets.datasets.pg19 import pg19_dataset_builder

from data.pg19 import test_books as read_books

# In the order of ids, which differs from the order of names.
BOOKS = [(2544, "Zwei é\nlines"), (10146, "Reminiscences of\n\npioneer days")]
URL = "http://www.gutenberg.org/ebooks/"


@pytest.fixture
def published(tmp_path):
    """DeepMind's bucket: a folder per split, a file per book, white space around the texts."""
    root = tmp_path / "published"
    for split in ("train", "validation", "test"):
        (root / split).mkdir(parents=True)
    for split, book_id, text in (
        ("train", 7, "training"),
        ("validation", 8, "validation"),
        *(("test", *book) for book in BOOKS),
    ):
        (root / split / f"{book_id}.txt").write_text(f"\n\n{text}\n", "utf-8")
    lines = [f"{i},Title,1908,{URL}{i}\n" for i in (7, 8, 2544, 10146)]
    (root / "metadata.csv").write_text("".join(lines))
    return root


@pytest.fixture
def tfds_dir(published, tmp_path, monkeypatch):
    """Return a function that runs TFDS' builder with Python's files instead of TensorFlow's."""
    files = types.SimpleNamespace(GFile=open, listdir=os.listdir)
    fake = types.SimpleNamespace(io=types.SimpleNamespace(gfile=files))
    monkeypatch.setattr(pg19_dataset_builder, "tf", fake)
    monkeypatch.setattr(pg19_dataset_builder, "_DATA_DIR", str(published))
    # There are no downloads; see data/redpajama. (monkeypatch would evaluate the old value.)
    pg19_dataset_builder.Builder.url_infos = None
    tfds.disable_progress_bar()

    def make(file_format):
        data_dir = tmp_path / file_format
        builder = pg19_dataset_builder.Builder(data_dir=data_dir, file_format=file_format)
        builder.download_and_prepare(file_format=file_format)
        return data_dir

    return make


def books(path):
    return [(book.id, book.text) for book in read_books(str(path))]


def test_deepminds_files(published):
    assert books(published) == BOOKS


def test_tensorflow_datasets(tfds_dir):
    assert books(tfds_dir("array_record")) == BOOKS


@pytest.mark.parametrize("name", ["test.jsonl", "test.jsonl.zst", "other.jsonl"])
def test_lines_of_json(name, tmp_path):
    """The URL is a field, as in Hugging Face's copies, or in meta."""
    records = [
        {"short_book_title": "B", "url": f"{URL}10146", "text": BOOKS[1][1] + "\n"},
        {"text": BOOKS[0][1], "meta": {"title": "A", "url": f"{URL}2544/"}},
    ]
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    (tmp_path / name).write_bytes(zstandard.compress(data) if name.endswith("zst") else data)
    (tmp_path / "dev.jsonl").write_text('{"text": "another split"}\n')
    assert books(tmp_path / name if name.startswith("other") else tmp_path) == BOOKS
