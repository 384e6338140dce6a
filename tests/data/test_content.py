"""The identity of prepared data follows the content of its files."""

import os
import shutil
import time
from pathlib import Path

import pytest

from ropewalk.data import content, tokenizing
from ropewalk.data.store import TokenStore
from tests.data.helpers import run_prepare as run
from tests.data.helpers import write_corpus


@pytest.fixture(autouse=True)
def _settle_at_once(monkeypatch):
    """Digests of new files are kept too."""
    monkeypatch.setattr(content, "_SETTLED", 0)


@pytest.fixture
def corpus(tmp_path, tokenizer):
    return write_corpus(tmp_path, tokenizer)


def fingerprints(folder: Path) -> list[str]:
    return [TokenStore(folder / split).fingerprint for split in ("train", "validation")]


def swap(path: Path) -> None:
    """Change the text of a file but not its size."""
    path.write_bytes(path.read_bytes().replace(b"ba", b"be"))


def test_another_folder_with_equal_names_and_sizes_is_other_data(corpus):
    shutil.copytree(corpus / "in", corpus / "B")
    assert fingerprints(run(corpus)) == fingerprints(run(corpus, path=str(corpus / "B")))
    assert len(list((corpus / "out").glob("jsonl-*"))) == 1  # a copy is the same data
    swap(corpus / "B" / "a.jsonl")
    ours, theirs = run(corpus), run(corpus, path=str(corpus / "B"))
    assert fingerprints(ours)[0] != fingerprints(theirs)[0]
    assert fingerprints(ours)[1] == fingerprints(theirs)[1]


def test_unchanged_files_are_read_once(corpus, monkeypatch):
    """A change of neither size nor modification time is seen, and so is another split."""
    reads, path = [], corpus / "in" / "a.jsonl"
    sha256 = content._sha256
    monkeypatch.setattr(
        content, "_sha256", lambda p, **k: reads.append(Path(p).name) or sha256(p, **k)
    )
    folder, status = run(corpus), path.stat()
    assert sorted(reads) == ["a.jsonl", "validation.jsonl"]
    assert run(corpus) == folder and len(reads) == 2
    time.sleep(0.02)  # longer than the clock of a file system ticks
    swap(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    edited = run(corpus)
    assert reads[2:] == ["a.jsonl"]
    (corpus / "in" / "validation.jsonl").rename(corpus / "in" / "other.jsonl")
    assert len({folder, edited, run(corpus)}) == 3
    # A damaged record of digests is made anew, and decides nothing.
    record = corpus / "out.content.json"
    record.write_text(record.read_text().replace('"a', '"b'))
    assert run(corpus, path=str(corpus / "in" / "other.jsonl")) != folder


def test_a_file_that_changes_while_it_is_read_is_refused(corpus, monkeypatch):
    encode = tokenizing._encode
    path = corpus / "in" / "a.jsonl"
    original = path.read_bytes()

    def edit(*arguments):
        path.write_bytes(original + b'{"text": "more"}\n')
        return encode(*arguments)

    monkeypatch.setattr(tokenizing, "_encode", edit)
    with pytest.raises(ValueError, match="changed while it was read"):
        run(corpus)
    monkeypatch.undo()
    path.write_bytes(original)
    assert TokenStore(run(corpus) / "train").num_documents == 20
