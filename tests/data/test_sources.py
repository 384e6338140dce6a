import gzip
import json

import pytest
import zstandard

from data import sources
from data.sources import jsonl_files, local_files, read_documents
from tests.data.helpers import write_jsonl


def read(path, **kwargs):
    return list(read_documents(jsonl_files(path), **kwargs))


def problems(path):
    return [(d.line, d.problem) for d in read(path) if d.problem]


def packed(suffix: str, data: bytes) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor().compress(data) if suffix == ".zst" else data


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_documents_come_in_order_with_their_places(tmp_path, suffix):
    texts = [f"text {i} é\n" * 1000 for i in range(100)]
    lines = "".join(
        json.dumps({"text": text}, ensure_ascii=i % 2 == 0) + "\n" for i, text in enumerate(texts)
    )
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(packed(suffix, lines.encode()))
    sizes = []
    found = read(path, on_bytes=sizes.append)
    assert [d.text for d in found] == texts
    assert [d.line for d in found] == list(range(1, 101))
    assert not any(d.problem for d in found)
    assert sum(sizes) == path.stat().st_size
    assert [d.text for d in read(path, start=(0, 98))] == texts[97:]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_files_made_of_several_compressed_parts_are_read_whole(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(packed(suffix, b'{"text": "o') + packed(suffix, b'ne"}\n{"text": "two"}'))
    assert [d.text for d in read(path)] == ["one", "two"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("lost", [1, 3, 20, 5000])
def test_a_file_cut_short_is_found_at_its_line(tmp_path, suffix, lost):
    path = tmp_path / f"a.jsonl{suffix}"
    lines = "".join(
        json.dumps({"text": f"{i} {i * 2654435761 % 2**32:x}"}) + "\n" for i in range(5000)
    )
    path.write_bytes(packed(suffix, lines.encode())[:-lost])
    found = read(path)
    assert found[-1].problem == "file is cut short: it ends inside compressed data"
    assert [d.problem for d in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1].line == len(found)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compressed_data_is_found(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    write_jsonl(path, ["not compressed at all"])
    ((line, problem),) = problems(path)
    assert line == 1
    assert problem.startswith("compressed data is damaged")


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
        (b"[" * 100_000, "not JSON that can be read (nested too deep)"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_read(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "before"}\n\n' + line + b'\n{"text": "after"}')
    found = read(path)
    assert [(d.line, d.text, d.problem) for d in found] == [
        (1, "before", None),
        (3, "", problem),
        (4, "after", None),
    ]


def test_an_empty_file_is_a_problem(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"\n\n")
    found = read(tmp_path)
    assert [(d.file, d.line, d.problem) for d in found] == [
        (0, 1, "file holds no document"),
        (1, 1, "file holds no document"),
    ]


def test_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b"}\r\n')
    assert [d.text for d in read(tmp_path)] == ["a", "b"]


def test_files_are_found_by_name_and_validation_told_apart(tmp_path):
    names = ["b.jsonl", "a/c.jsonl.gz", "validation.jsonl.zst", "val-0.jsonl", "test_1.jsonl"]
    for name in [*names, "valley.jsonl", "tests.jsonl", "notes.txt", "x.json"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = {file.name: file.validation for file in jsonl_files(tmp_path)}
    assert list(found) == sorted(found)
    assert found == {
        "a/c.jsonl.gz": False,
        "b.jsonl": False,
        "test_1.jsonl": True,
        "tests.jsonl": False,
        "val-0.jsonl": True,
        "validation.jsonl.zst": True,
        "valley.jsonl": False,
    }


def test_a_folder_of_validation_files_only_is_text_like_any(tmp_path):
    write_jsonl(tmp_path / "test.jsonl", ["a"])
    assert [file.validation for file in jsonl_files(tmp_path)] == [False]


@pytest.mark.parametrize(
    ("fields", "subset"),
    [
        ({"red_pajama_subset": "book"}, "book"),
        ({"meta": {"redpajama_set_name": "RedPajamaC4"}}, "RedPajamaC4"),  # SlimPajama
        ({"meta": "{}"}, None),
        ({}, None),
    ],
)
def test_subset_is_found_where_the_releases_put_it(tmp_path, fields, subset):
    write_jsonl(tmp_path / "a.jsonl", ["x"], **fields)
    assert read(tmp_path)[0].subset == subset


def test_local_is_real_library_source_and_bounded():
    files = local_files()
    assert files == local_files()
    assert sources.LOCAL_BYTES * 0.5 < sum(file.size for file in files) <= sources.LOCAL_BYTES
    assert not any("site-packages" in file.name or "/test" in file.name for file in files)
    documents = list(read_documents(files))
    assert len(documents) == len(files) > 50
    assert not any(document.problem for document in documents)
    assert sum("import " in document.text for document in documents) > len(files) / 2
