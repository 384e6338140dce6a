"""The Beam preparation makes what the single-process one makes. Needs the `beam` extra."""

import pytest
import zstandard

pytest.importorskip("apache_beam", reason="needs apache-beam (the `beam` extra)")

from data.redpajama.beam import main
from data.redpajama.source import RedPajama
from tests.data.helpers import plain_text, write_jsonl

pytestmark = pytest.mark.slow


def write_full(root, count=60):
    """RedPajama-Data-1T's folders: plain, compressed, of very different sizes, one held out."""
    for name in ("arxiv/arxiv_0", "book/book", "c4/c4-train.00000-of-01024", "wikipedia/wiki"):
        path = root / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [f"{name} {plain_text(i)}" for i in range(3 * count if "book" in name else count)]
        write_jsonl(path, texts, meta={"name": name, "é": "\n"})
    crawl = root / "common_crawl/2019-30"
    crawl.mkdir(parents=True)
    plain = crawl / "en_head_0000.jsonl"
    write_jsonl(plain, [f"web {plain_text(i)}" for i in range(count)])
    (crawl / "en_head_0000.jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    write_jsonl(root / "c4/validation.jsonl", ["held out", "and this"], meta={})


def read(root, out, **kwargs):
    settings = {"skip": False, "show_progress": False} | kwargs
    return RedPajama(str(root), out / "tensorflow_datasets", **settings)


def records(source):
    """Every document of every split as stored, in order."""
    return [[dict(split[i]) for i in range(len(split))] for split in source._sources]


@pytest.mark.parametrize("workers", [1, 2])
def test_same_documents_in_the_same_order(tmp_path, workers, monkeypatch):
    root = tmp_path / "in"
    write_full(root)
    beam_options = ["--runner=DirectRunner", f"--direct_num_workers={workers}"]
    if workers > 1:
        beam_options.append("--direct_running_mode=multi_processing")
    assert main(["--path", str(root), "--out", str(tmp_path / "beam"), *beam_options]) == 0
    by_one = records(read(root, tmp_path / "one"))
    # What Beam made is found, not made again.
    monkeypatch.setattr("data.redpajama.redpajama_dataset_builder.examples", None)
    by_beam = records(read(root, tmp_path / "beam"))
    assert [len(split) for split in by_one] == [7 * 60, 2]
    assert by_beam == by_one


def test_broken_documents_stop_it_or_are_counted(tmp_path, capfd):
    root = tmp_path / "in"
    write_full(root, count=5)
    with (root / "book/book.jsonl").open("a") as file:
        file.write('{"txt": 1}\n{"text": ""}\n')
    arguments = ["--path", str(root), "--out", str(tmp_path / "beam")]
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert 'book/book.jsonl:16: no "text" in this JSON line' in capfd.readouterr().err
    assert main([*arguments, "--on-bad-document", "skip"]) == 0
    assert "left out 2 documents" in capfd.readouterr().out
    count, first = read(root, tmp_path / "beam", skip=True).skipped
    assert count == 2
    assert [problem.rpartition("/")[2] for problem in first] == [
        'book.jsonl:16: no "text" in this JSON line',
        "book.jsonl:17: empty document",
    ]
    assert not list((tmp_path / "beam").rglob("skipped.json"))


def test_nothing_to_read_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--path", str(tmp_path / "none"), "--out", str(tmp_path)])
    error = capsys.readouterr().err
    place = f"{tmp_path}/none: no such file or folder"
    assert error == f"python -m data.redpajama.beam: error: {place}\n"
