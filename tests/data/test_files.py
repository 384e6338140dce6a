"""Which files of a folder are read, and for which split."""

import gzip
import os

import pytest
import zstandard

from ropewalk.data.files import list_files
from ropewalk.data.prepare import describe_files
from ropewalk.data.sources import source_class
from ropewalk.data.sources.jsonl import FORMAT

LINE = b'{"text": "words"}\n'


def write(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)


def list_json_lines(root):
    return list_files(root, (FORMAT,))


def held_out(root):
    return [file.name for file in list_json_lines(root).files if file.validation]


HELD_OUT = [
    *("TEST.JSONL", "val.jsonl.zst", "corpus_val.jsonl", "ValSplit.jsonl", "test1.jsonl"),
    "c4-validation.00000-of-00008.json.gz",  # C4
    "validation-00000-of-00001-a09b74b3ef9c3b56.jsonl",  # the Hub
    *("validation/chunk1/example_holdout_0.jsonl.zst", "test/chunk1/a.jsonl"),  # SlimPajama
]
TRAINED_ON = ["val_speeches.jsonl", "devices.jsonl", "test/train.jsonl", "medieval.jsonl"]


@pytest.mark.parametrize("name", [*HELD_OUT, *TRAINED_ON])
def test_names_of_splits_hold_out_and_words_of_a_subject_do_not(tmp_path, name):
    write(tmp_path, "books.jsonl", name)
    assert held_out(tmp_path) == [name] * (name in HELD_OUT)


def test_a_word_of_a_split_counts_beside_a_file_of_training(tmp_path):
    write(tmp_path, "train.en.jsonl", "valid.en.jsonl", "test_speeches.jsonl")
    write(tmp_path, "train-other-500/1/a.jsonl", "test-other/1/a.jsonl")  # LibriSpeech
    assert held_out(tmp_path) == ["test-other/1/a.jsonl", "valid.en.jsonl"]
    write(tmp_path, "all/test.jsonl", "all/validation.jsonl")  # if all names hold out, none does
    assert held_out(tmp_path / "all") == []


def test_every_entry_is_read_or_named_with_its_reason(tmp_path):
    root = tmp_path / "in"
    write(root, "a.jsonl", "b.ndjson", "c.JSONL", "d.json", "deep/er/f.jsonl")
    write(root, ".ipynb_checkpoints/a-checkpoint.jsonl", "._a.jsonl", "notes.txt", "g.jsonl.bz2")
    write(root, "data-00000-of-00001.arrow")
    (root / "e.json.gz").write_bytes(gzip.compress(LINE))
    (root / "info.json").write_text('{\n  "name": "a set"\n}\n')
    os.mkfifo(root / "pipe.jsonl")
    (root / "runs" / "mine" / "checkpoints").mkdir(parents=True)
    write(root, "runs/mine/config.json", "runs/mine/metrics.jsonl")
    listing = list_json_lines(root)
    names = ["a.jsonl", "b.ndjson", "c.JSONL", "d.json", "deep/er/f.jsonl", "e.json.gz"]
    assert [file.name for file in listing.files] == names
    reasons = dict(listing.left_out)
    left_out = ".ipynb_checkpoints/ ._a.jsonl notes.txt g.jsonl.bz2 info.json pipe.jsonl runs/mine/"
    arrow = "data-00000-of-00001.arrow"
    assert reasons.keys() == {*left_out.split(), arrow} and 'no "text"' in reasons["info.json"]
    assert "to_parquet" in reasons[arrow] and "to_parquet" not in reasons["notes.txt"]
    source = source_class("jsonl")(path=str(root))
    lines = "\n".join(describe_files(source))
    assert all(name in lines for name in [*names, *reasons])
    assert [document.text for document in source.read()] == ["words"] * 6


@pytest.mark.parametrize(
    ("names", "unread"),
    [
        ("x-00000-of-00003.jsonl", "x-00001-of-00003.jsonl, x-00002-of-00003.jsonl"),
        ("a/t-00000-of-00002-a09b74b3ef9c3b56.jsonl", "a/t-00001-of-00002.jsonl"),  # the Hub
        ("part_2_of_3.jsonl part_3_of_3.jsonl", "part_1_of_3.jsonl"),
        ("c4-train.00000-of-00002.json.gz c4-train.00001-of-00002.json.gz", ""),
        (" ".join(f"{i}-of-11.jsonl" for i in range(2, 12)), "1-of-11.jsonl"),
        ("one-of-9.jsonl 3-of-200000.jsonl 7_of_hearts.jsonl", ""),
    ],
)
def test_parts_of_a_text_that_are_missing_are_named(tmp_path, names, unread):
    write(tmp_path, *names.split())
    lines = [
        x for x in describe_files(source_class("jsonl")(path=str(tmp_path))) if "not read" in x
    ]
    assert lines == [f"not read: {unread}, parts of the same text"] * bool(unread)


def test_a_bad_start_leaves_no_file_out(tmp_path):
    """An error names the line."""
    write(tmp_path, "b.jsonl")
    (tmp_path / "a.json").write_bytes(b'{"text": null}\n' + LINE)
    source = source_class("jsonl")(path=str(tmp_path))
    assert source.left_out == []
    source.check()
    first, *rest = list(source.read())
    assert first.file == 0 and first.problem
    assert [d.text for d in rest] == ["words"] * 2


def test_linked_folders_and_files_are_read_once(tmp_path):
    root, other = tmp_path / "in", tmp_path / "other"
    write(root, "a.jsonl", "z/b.jsonl")
    write(other, "part/c.jsonl", "d.jsonl")
    (root / "c").symlink_to("../other/part")
    (root / "d.jsonl").symlink_to("../other/d.jsonl")
    (root / "again").symlink_to("z")
    (root / "copy.jsonl").symlink_to("a.jsonl")
    (root / "z" / "up").symlink_to("..")
    (root / "outside").symlink_to("../..")  # the files around `in` are not meant
    (other / "part" / "around").symlink_to("..")
    (other / "part" / "back").symlink_to(root)
    listing = list_json_lines(root)
    assert [file.name for file in listing.files] == ["a.jsonl", "c/c.jsonl", "d.jsonl", "z/b.jsonl"]
    left_out = {"again/", "copy.jsonl", "z/up/", "outside/", "c/around/", "c/back/"}
    assert {name for name, _ in listing.left_out} == left_out


def test_files_that_cannot_be_read_are_refused(tmp_path):
    """A file is read twice, which `data.path=<(zcat text.jsonl.gz)` does not allow."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: a pipe, a device or a broken link; data"):
        list_json_lines(tmp_path / "pipe")
    write(tmp_path, "a.jsonl")
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(LINE))
    with pytest.raises(ValueError, match=r"a\.jsonl and a\.jsonl\.zst are one file"):
        list_json_lines(tmp_path)
    (tmp_path / "b.jsonl").symlink_to("/mnt/gone/b.jsonl")
    with pytest.raises(ValueError, match=r"b\.jsonl: the target of this link is missing"):
        list_json_lines(tmp_path)
