import gzip
import json
import os
import subprocess
import sys

import pytest
import zstandard

from data.sources import source_class
from tests.data.helpers import write_jsonl


def source(name, path=None):
    return source_class(name)(path=path)


def read(path, **kwargs):
    return list(source("jsonl", str(path)).read(**kwargs))


def packed(suffix: str, data: bytes) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor().compress(data) if suffix == ".zst" else data


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_documents_come_in_order_with_their_lines(tmp_path, suffix):
    texts = [f"text {i} é\n" * 1000 for i in range(100)]
    lines = "".join(
        json.dumps({"text": text}, ensure_ascii=i % 2 == 0) + "\n" for i, text in enumerate(texts)
    )
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(packed(suffix, lines.encode()))
    sizes = []
    documents = read(path, on_bytes=sizes.append)
    assert [d.text for d in documents] == texts
    assert [d.line for d in documents] == list(range(1, 101))
    assert not any(d.problem for d in documents)
    assert sum(sizes) == path.stat().st_size
    assert [d.text for d in read(path, start=(0, 98))] == texts[97:]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_concatenated_compressed_files_are_read(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(packed(suffix, b'{"text": "o') + packed(suffix, b'ne"}\n{"text": "two"}'))
    assert [d.text for d in read(path)] == ["one", "two"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("lost", [1, 3, 20, 5000])
def test_a_truncated_file_is_reported_at_its_line(tmp_path, suffix, lost):
    path = tmp_path / f"a.jsonl{suffix}"
    lines = "".join(
        json.dumps({"text": f"{i} {i * 2654435761 % 2**32:x}"}) + "\n" for i in range(5000)
    )
    path.write_bytes(packed(suffix, lines.encode())[:-lost])
    documents = read(path)
    assert documents[-1].problem == "file is cut short: it ends inside compressed data"
    assert [d.problem for d in documents[:-1]] == [None] * (len(documents) - 1)
    assert documents[-1].line == len(documents)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": ""}', "empty document"),
        (b'{"text": " \\n\\t "}', "empty document"),
        (b'{"txt": "a"}', 'no "text" in this JSON line'),
        (b'["text"]', 'no "text" in this JSON line'),
        (b'{"text": 3}', '"text" is int, not a string'),
        (b'{"text": null}', '"text" is NoneType, not a string'),
        (b'{"text": "a"', "not JSON (Expecting ',' delimiter: line 1 column 13 (char 12))"),
        (b"hello", "not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b'{"text": "\xff"}', "broken UTF-8 at byte 11 of the line"),
        (b'{"text": "a\\ud800"}', "text is not Unicode: lone surrogate at character 2"),
        (b"[" * 100_000, "not JSON that can be read (nested more than 100 deep)"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_read(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "before"}\n\n' + line + b'\n{"text": "after"}')
    documents = read(path)
    assert [(d.line, d.text, d.problem) for d in documents] == [
        (1, "before", None),
        (3, "", problem),
        (4, "after", None),
    ]


@pytest.mark.parametrize(
    ("fields", "subset"),
    [
        ({"red_pajama_subset": "book"}, "book"),
        ({"meta": {"redpajama_set_name": "RedPajamaC4"}}, "RedPajamaC4"),  # SlimPajama
        ({"meta": "{}"}, None),
        ({}, None),
    ],
)
def test_subset_is_read_from_the_fields_of_all_releases(tmp_path, fields, subset):
    write_jsonl(tmp_path / "a.jsonl", ["x"], **fields)
    assert read(tmp_path)[0].subset == subset


def test_local_continues_after_the_last_stored_file():
    """A resumed run stored the last document of a finished shard twice."""
    first = next(source("local").read(start=(3, 1)))
    assert (first.file, first.line) == (3, 1)
    assert next(source("local").read(start=(first.file, first.line + 1))).file == 4


NEW_SOURCE = """
from data.source import Document, InputFile, Source


class Poem(Source):
    \"\"\"Forty verses.\"\"\"

    needs_path = False

    @property
    def files(self):
        return [InputFile(path="poem", name="poem", size=1)]

    def read_file(self, file, line, on_bytes):
        for number in range(line, 41):
            yield Document(f"Verse {number}: a rose is a rose.\\n" * number, file, number)
"""
USE_IT = """
import data.sources
data.sources.__path__.append(".")
from data.config import DataConfig
from data.pipeline import make_batches, open_data
config = DataConfig(source="poem", tokenizer="t.model", context_length=8, batch_size=2,
                    prepared_root="prepared")
batch = next(make_batches(open_data(config), start_step=0))
print(batch["tokens"].shape, open_data(config).held_out)
"""


def test_a_source_is_one_file(tmp_path, tokenizer):
    """Other files compared the names of sources, so a new one needed changes in six of them."""
    (tmp_path / "poem.py").write_text(NEW_SOURCE)
    (tmp_path / "t.model").write_bytes(tokenizer.model)
    done = subprocess.run(
        [sys.executable, "-c", USE_IT], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.getcwd()},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "(2, 8) None\n", done.stderr
