"""The builder on file names and fields that Together published."""

import json
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
import zstandard

from data.config import DataConfig
from data.prepare import prepare
from data.redpajama.redpajama_dataset_builder import Builder, layout, published_files
from data.sources import source_class
from data.store import TokenStore
from tests.data.helpers import plain_text, write_jsonl


def write(path: Path, *records: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(zstandard.compress(data) if path.suffix == ".zst" else data)


@pytest.fixture
def sample(tmp_path):
    """RedPajama-Data-1T-Sample: one .jsonl per source; meta is a string."""
    root = tmp_path / "sample"
    write(root / "arxiv_sample.jsonl", {"text": "paper", "meta": '{"arxiv_id": "2405.14591"}'})
    write(root / "cc_2019-30_sample.jsonl", {"text": "web", "meta": '{"source": "cc/2019-30"}'})
    write(root / "cc_2023-06_sample.jsonl", {"text": "web 2023", "meta": "{}"})
    write(
        root / "github_sample.jsonl",
        {"text": "def f():\n\treturn 'é'\n", "meta": "{}"},
        {"text": "int x;", "meta": "{}"},
    )
    return root


@pytest.fixture
def full(tmp_path):
    """RedPajama-Data-1T: folders; meta is an object, but missing in Common Crawl."""
    root = tmp_path / "full"
    write(root / "arxiv/arxiv_0.jsonl", {"text": "paper", "meta": {"arxiv_id": "1", "n": 2}})
    write(root / "book/book.jsonl", {"text": "story", "meta": {"short_book_title": "T"}})
    write(root / "c4/c4-train.00000-of-01024.jsonl", {"text": "page", "meta": {"url": "u"}})
    crawl = "common_crawl/2019-30/en_head_0000.json.gz.dedup.classifier.jsonl.zst"
    write(root / crawl, {"text": "web", "pred_label": "__label__wiki", "source": "cc/x"})
    write(root / "wikipedia/wiki.jsonl", {"text": "article", "meta": {"title": "A"}})
    write(root / "README.jsonl", {"text": "not one of the set's files"})
    return root


def built(root, data_dir, **kwargs):
    builder = Builder(config=layout(root), data_dir=data_dir, file_format="array_record", **kwargs)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=root), file_format="array_record"
    )
    return builder


def documents(builder, split="train"):
    """Return (subset, meta as JSON) of every text."""
    records = builder.as_data_source(split=split)
    return {
        r["text"].decode(): (r["red_pajama_subset"].decode(), json.loads(r["meta"].decode()))
        for r in (records[i] for i in range(len(records)))
    }


def test_sample_layout(sample, tmp_path):
    builder = built(sample, tmp_path / "out")
    assert builder.info.full_name == "redpajama/sample/1.0.0"
    assert documents(builder) == {
        "paper": ("arxiv", {"arxiv_id": "2405.14591"}),
        "web": ("common_crawl", {"source": "cc/2019-30"}),
        "web 2023": ("common_crawl", {}),
        "def f():\n\treturn 'é'\n": ("github", {}),
        "int x;": ("github", {}),
    }


def test_full_layout(full, tmp_path):
    assert documents(built(full, tmp_path / "out")) == {
        "paper": ("arxiv", {"arxiv_id": "1", "n": 2}),
        "story": ("book", {"short_book_title": "T"}),
        "page": ("c4", {"url": "u"}),
        "web": ("common_crawl", {"pred_label": "__label__wiki", "source": "cc/x"}),
        "article": ("wikipedia", {"title": "A"}),
    }


def test_every_published_sample_file_has_its_subset(tmp_path):
    """The names of the sample's eleven files."""
    expected = {
        "arxiv_sample.jsonl": "arxiv", "book_sample.jsonl": "book", "c4_sample.jsonl": "c4",
        "cc_2019-30_sample.jsonl": "common_crawl", "cc_2020-05_sample.jsonl": "common_crawl",
        "cc_2021-04_sample.jsonl": "common_crawl", "cc_2022-05_sample.jsonl": "common_crawl",
        "cc_2023-06_sample.jsonl": "common_crawl", "github_sample.jsonl": "github",
        "stackexchange_sample.jsonl": "stackexchange", "wikipedia_sample.jsonl": "wikipedia",
    }  # fmt: skip
    for name in expected:
        (tmp_path / name).write_bytes(b"")
    assert layout(tmp_path) == "sample"
    subsets = {file.name: subset for file, subset in published_files("sample", tmp_path)}
    assert subsets == expected


# Names of RedPajama-Data-1T's urls.txt; wget numbers those of later crawls.
URLS = {
    "arxiv_023827cd-7ee8-42e6-aa7b-661731f4c70f.jsonl": "arxiv",
    "book.jsonl": "book",
    "c4-train.00000-of-01024.jsonl": "c4",
    "en_head_0000.json.gz.dedup.classifier.jsonl.zst": "common_crawl",
    "en_head_0000.json.gz.dedup.classifier.jsonl.zst.1": "common_crawl",
    "en_middle_0104.json.gz.dedup.classifier.jsonl.zst.4": "common_crawl",
    "filtered_a777da5620f1467f8df3616b17d533dc.sampled.jsonl": "github",
    "stackexchange.jsonl": "stackexchange",
    "wiki.jsonl": "wikipedia",
}


@pytest.mark.parametrize("folder", ["", "data.together.xyz/redpajama-data-1T/v1.0.0"])
def test_published_names_without_folders_have_their_subsets(tmp_path, folder):
    """`wget -i urls.txt` makes no folders, `wget -x` those of the address."""
    root = tmp_path / "flat" / folder
    root.mkdir(parents=True)
    for number, name in enumerate(URLS):
        data = json.dumps({"text": f"document {number}", "meta": {}}).encode()
        (root / name).write_bytes(zstandard.compress(data) if ".zst" in name else data)
    (root / "urls.txt").write_text("https://example.org\n")
    write(root / "mine.jsonl", {"text": "not one of the set's files"})
    source = source_class("redpajama")(path=str(tmp_path / "flat"))
    left_out = {name.rpartition("/")[2] for name, _ in source.left_out}
    assert left_out == {"urls.txt", "mine.jsonl"}
    assert layout(tmp_path / "flat") == "full"
    subsets = {
        text: subset
        for text, (subset, _) in documents(built(tmp_path / "flat", tmp_path / "o")).items()
    }
    assert subsets == {f"document {i}": subset for i, subset in enumerate(URLS.values())}


@pytest.mark.parametrize("skips", ["error", "skip"])
def test_other_files_are_refused_before_they_are_read(tmp_path, skips):
    root = tmp_path / "in"
    write(root / "mine.jsonl", {"text": "one"}, {"text": "two"})
    source = source_class("redpajama")(path=str(root), on_bad_document=skips)
    with pytest.raises(ValueError, match=r"mine\.jsonl: not a name of RedPajama's .*=jsonl"):
        source.check()


def test_files_without_a_good_document_are_refused(tmp_path):
    root = tmp_path / "in"
    write(root / "book.jsonl", {"text": ""}, {"text": " "})
    config = DataConfig(
        source="redpajama", path=str(root), vocab_size=600, on_bad_document="skip",
        context_length=8, batch_size=1, prepared_root=str(tmp_path / "out"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="no document is left in a split"):
        prepare(config, show_progress=False)


def test_the_builder_follows_the_content(tmp_path):
    root = tmp_path / "in"
    texts = []
    for text in ("a paper", "a piper"):
        write(root / "arxiv_sample.jsonl", {"text": text, "meta": "{}"})
        source = source_class("redpajama")(path=str(root), prepared_root=str(tmp_path / "out"))
        texts += [document.text for document in source.read()]
    assert texts == ["a paper", "a piper"]


def test_prepare_reads_through_the_builder(tmp_path):
    root = tmp_path / "in"
    root.mkdir()
    for name in ("arxiv", "wikipedia"):
        write_jsonl(
            root / f"{name}_sample.jsonl",
            [f"{name} {plain_text(i)}" for i in range(200)],
            meta="{}",
        )
    config = DataConfig(
        source="redpajama", path=str(root), vocab_size=600, subset_shares=(("wikipedia", 0.0),),
        context_length=8, batch_size=1, prepared_root=str(tmp_path / "out"),
    )  # fmt: skip
    folder = prepare(config, show_progress=False)
    assert prepare(config, show_progress=False) == folder
    counts = [TokenStore(folder / split).num_documents for split in ("train", "validation")]
    assert sum(counts) == 200
    # Other files in the same folder are other data.
    write_jsonl(root / "book_sample.jsonl", ["a book"], meta="{}")
    assert prepare(config, show_progress=False) != folder
