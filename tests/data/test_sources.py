import gzip
import json

import pytest
import zstandard

from ropewalk.data.sources import source_class
from ropewalk.utils import limits


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
    lines = "".join(json.dumps({"text": t}, ensure_ascii="5" in t) + "\n" for t in texts)
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
@pytest.mark.parametrize("lost", [1, 5000])
def test_a_truncated_file_is_reported_at_its_line(tmp_path, suffix, lost):
    path = tmp_path / f"a.jsonl{suffix}"
    lines = b"".join(b'{"text": "%d %x"}\n' % (i, i * 2654435761 % 2**32) for i in range(5000))
    path.write_bytes(packed(suffix, lines)[:-lost])
    documents = read(path)
    assert documents[-1].problem == "file is cut short: it ends inside compressed data"
    assert [d.problem for d in documents[:-1]] == [None] * (len(documents) - 1)
    assert documents[-1].line == len(documents)


def long_window(data: bytes) -> bytes:
    """Compress as `zstd --long=31`."""
    settings = zstandard.ZstdCompressionParameters(window_log=31)
    compressor = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    return compressor.compress(data) + compressor.flush()


def skippable(data: bytes) -> bytes:
    return bytes([0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0]) + b"size" + zstandard.compress(data)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", lambda data: gzip.compress(data[:9]) + bytes(9000) + gzip.compress(data[9:])),
        (".gz", lambda data: gzip.compress(data) + bytes(512)),
        (".zst", long_window),
        # Pzstd writes a skippable frame before each frame (RFC 8878, 3.1.2).
        (".zst", lambda data: b"".join(map(skippable, (data[:9], data[9:])))),
    ],
)
def test_files_that_gzip_and_zstd_read_are_not_damaged(tmp_path, suffix, compress):
    data = b"".join(b'{"text": "%d"}\n' % i for i in range(100))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(compress(data))
    assert suffix == ".zst" or gzip.decompress(path.read_bytes()) == data
    assert [(d.text, d.problem) for d in read(path)] == [(str(i), None) for i in range(100)]


def members(suffix: str, count: int) -> list[bytes]:
    """Return compressed members with checksums; a line crosses each bound of two."""
    lines = b"".join(b'{"text": "%d %x"}\n' % (i, i * 2654435761 % 2**32) for i in range(1000))
    size = len(lines) // count
    parts = [lines[i * size : (i + 1) * size if i < count - 1 else None] for i in range(count)]
    if suffix == ".gz":
        return list(map(gzip.compress, parts))
    return list(map(zstandard.ZstdCompressor(write_checksum=True).compress, parts))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("place", ["checksum", "data", "head"])
def test_a_file_ends_before_a_damaged_member(tmp_path, suffix, damaged, place):
    parts = members(suffix, 3)
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(b"".join(parts))
    texts = [document.text for document in read(path)]
    assert len(texts) == 1000
    part = bytearray(parts[damaged])
    # gzip's checksum is 8 bytes before the end of a member, zstd's 4.
    places = {"checksum": -8 if suffix == ".gz" else -4, "data": len(part) // 2, "head": 2}
    part[places[place]] ^= 64
    parts[damaged] = bytes(part)
    path.write_bytes(b"".join(parts))
    sizes = []
    documents = read(path, on_bytes=sizes.append)
    assert sum(sizes) == path.stat().st_size
    good = [document.text for document in documents if not document.problem]
    rest = sum(map(len, parts[damaged:]))
    # The line that crosses into the damaged member is lost too.
    assert good == texts[: len(good)] and abs(len(good) - 333 * damaged) < 15
    (problem,) = [document for document in documents if document.damaged_bytes]
    assert problem == documents[-1] and problem.damaged_bytes == rest
    assert f"damaged after {path.stat().st_size - rest:,} bytes" in str(problem.problem)
    assert [d.line for d in documents] == list(range(1, len(documents) + 1))
    again = read(path, start=(0, documents[-1].line))
    assert [document.text for document in again] == [documents[-1].text]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_only_a_line_that_is_too_long_is_left_out(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(limits, "MAX_JSON", 1000)
    texts = ("a", "b" * 1000, "c", "d" * 988, "e" * 300_000)
    lines = [json.dumps({"text": text}) for text in texts]
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(packed(suffix, "\n".join(lines).encode()))
    documents = read(path)
    assert [(d.line, d.text[:1]) for d in documents] == list(enumerate(["a", "", "c", "d", ""], 1))
    assert not any(d.damaged_bytes for d in documents)
    assert "a line of more than 1,000 bytes: it has 1,012" in str(documents[1].problem)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": " \\n\\t "}', "empty document"),
        (b'{"txt": "a"}', 'no "text" in this JSON line'),
        (b'{"text": 3}', '"text" is int, not a string'),
        (b'{"text": null}', '"text" is null, not a string'),
        (b'{"text": "a"', "not JSON (Expecting ',' delimiter: line 1 column 13 (char 12))"),
        (b'{"text": "\xff"}', "broken UTF-8 at byte 11; convert the file to UTF-8"),
        (b'{"text": "a\\ud800"}', "text is not Unicode: lone surrogate at character 2"),
        (b"[" * 100_000, "not JSON that can be read (nested more than 100 deep)"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_read(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "before"}\n\n' + line + b'\n{"text": "after"}')
    documents = read(path)
    expected = [(1, "before", None), (3, "", problem), (4, "after", None)]
    assert [(d.line, d.text, d.problem) for d in documents] == expected


def test_local_continues_after_the_last_stored_file():
    """A resumed run stored the last document of a finished shard twice."""
    first = next(source("local").read(start=(3, 1)))
    assert (first.file, first.line) == (3, 1)
    assert next(source("local").read(start=(first.file, first.line + 1))).file == 4
