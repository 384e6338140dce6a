"""Beam must make the same files as one process. Needs the `beam` extra."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from ropewalk.data.config import DataConfig
from ropewalk.data.prepare import prepare
from ropewalk.data.sources.redpajama import RedPajama
from tests.conftest import ROOT
from tests.data.helpers import contents, plain_text, write_jsonl

# Beam needs a separate environment: its protobuf is older than sentencepiece's.
PYTHON = Path(os.environ.get("BEAM_PYTHON", ROOT / ".venv-beam/bin/python"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason="needs apache-beam in .venv-beam (or BEAM_PYTHON): `make test-bucket` makes it",
    ),
]


def write_full(root, count=60):
    """Write RedPajama-Data-1T's folders: plain, compressed, of different sizes, one held out."""
    for name in ("arxiv/arxiv_0", "book/book", "c4/c4-train.00000-of-01024", "wikipedia/wiki"):
        path = root / f"{name}.jsonl"
        texts = [f"{name} {plain_text(i)}" for i in range(3 * count if "book" in name else count)]
        write_jsonl(path, texts, meta={"name": name, "é": "\n"})
    crawl = root / "common_crawl/2019-30/en_head_0000.jsonl.zst"
    write_jsonl(crawl, [f"web {plain_text(i)}" for i in range(count)])
    with (root / "book/book.jsonl").open("a") as file:
        file.write('{"txt": 1}\n')
    write_jsonl(root / "c4/validation.jsonl", ["held out", "and this"], meta={})


def records(root, out):
    """Return the records of both splits in order."""
    builder = RedPajama(path=str(root), prepared_root=str(out))._builder
    splits = map(builder.as_data_source, ("train", "validation"))
    return [[dict(split[i]) for i in range(len(split))] for split in splits]


def test_same_documents_in_the_same_order_and_the_same_stores(tmp_path, monkeypatch):
    """The command is a process, because tfds needs the package that `__main__` lacks."""
    root = tmp_path / "in"
    write_full(root)
    # The command of docs/scaling.md, with two workers.
    command = [
        PYTHON,
        "-m",
        "ropewalk.data.redpajama.beam",
        "--path",
        root,
        "--out",
        tmp_path / "beam",
    ]
    command += ["--runner=DirectRunner", "--direct_num_workers=2"]
    command += ["--direct_running_mode=multi_processing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "train: 421 documents" in done.stdout
    by_one = records(root, tmp_path / "one")
    config = DataConfig(
        source="redpajama", path=str(root), vocab_size=500, context_length=2, batch_size=1,
        on_bad_document="skip", prepared_root=str(tmp_path / "one"),
    )  # fmt: skip
    store_by_one = prepare(config)
    # Beam's files must be used: building them again would fail.
    monkeypatch.setattr("ropewalk.data.redpajama.redpajama_dataset_builder.examples", None)
    by_beam = records(root, tmp_path / "beam")
    assert [len(split) for split in by_one] == [7 * 60 + 1, 2]
    assert by_beam == by_one
    store_by_beam = prepare(dataclasses.replace(config, prepared_root=str(tmp_path / "beam")))
    assert contents(store_by_beam) == contents(store_by_one) != {}
