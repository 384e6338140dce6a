"""The builder on file names and fields that Together published."""

import json

import pytest

from ropewalk.data.redpajama.redpajama_dataset_builder import published_files
from ropewalk.data.sources import source_class
from ropewalk.data.sources.redpajama import build
from tests.data.helpers import write_jsonl


def documents(builder, split="train"):
    """Return (subset, meta as JSON) of every text."""
    source, fields = builder.as_data_source(split=split), ("text", "red_pajama_subset", "meta")
    records = [[source[i][name].decode() for name in fields] for i in range(len(source))]
    return {text: (subset, json.loads(meta)) for text, subset, meta in records}


def test_meta_of_both_releases(tmp_path):
    """A string in the sample; in the full set, by folders, an object, or missing (Common Crawl)."""
    sample, full = tmp_path / "sample", tmp_path / "full"
    code = "def f():\n\treturn 'é'\n"
    write_jsonl(sample / "arxiv_sample.jsonl", ["paper"], meta='{"arxiv_id": "2405.14591"}')
    write_jsonl(sample / "github_sample.jsonl", [code, "x"], meta="{}")
    builder = build(str(sample), str(tmp_path / "out"))
    assert builder.info.full_name == "redpajama/2.0.0"
    assert documents(builder) == {
        "paper": ("arxiv", {"arxiv_id": "2405.14591"}),
        **{text: ("github", {}) for text in (code, "x")},
    }
    write_jsonl(full / "c4/c4-train.00000-of-01024.jsonl", ["page"], meta={"url": "u", "n": 2})
    crawl = "common_crawl/2019-30/en_head_0000.json.gz.dedup.classifier.jsonl.zst"
    write_jsonl(full / crawl, ["web"], pred_label="__label__wiki", source="cc/x")
    write_jsonl(full / "README.jsonl", ["not one of the set's files"])
    assert documents(build(str(full), str(tmp_path / "out"))) == {
        "page": ("c4", {"url": "u", "n": 2}),
        "web": ("common_crawl", {"pred_label": "__label__wiki", "source": "cc/x"}),
    }


PUBLISHED = {
    "sample": {
        "arxiv_sample.jsonl": "arxiv", "book_sample.jsonl": "book", "c4_sample.jsonl": "c4",
        "cc_2019-30_sample.jsonl": "common_crawl", "github_sample.jsonl": "github",
    },
    "full": {  # names of urls.txt; wget numbers those of later crawls
        "arxiv_023827cd-7ee8-42e6-aa7b-661731f4c70f.jsonl": "arxiv",
        "book.jsonl": "book",
        "c4-train.00000-of-01024.jsonl": "c4",
        "en_head_0000.json.gz.dedup.classifier.jsonl.zst.1": "common_crawl",
        "en_middle_0104.json.gz.dedup.classifier.jsonl.zst.4": "common_crawl",
        "filtered_a777da5620f1467f8df3616b17d533dc.sampled.jsonl": "github",
        "stackexchange.jsonl": "stackexchange",
        "wiki.jsonl": "wikipedia",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "folder"), [("sample", ""), ("full", "data.together.xyz/redpajama-data-1T/v1.0.0")]
)
def test_published_names_without_folders_have_their_subsets(tmp_path, folder, name):
    """`wget -i urls.txt` makes no folders, `wget -x` those of the address."""
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for file in (*PUBLISHED[name], "urls.txt", "mine.jsonl"):
        (tmp_path / folder / file).write_bytes(b'{"text": "content decides on compression"}\n')
    source = source_class("redpajama")(path=str(tmp_path))
    left_out = {file.rpartition("/")[2] for file, _ in source.left_out}
    assert left_out == {"urls.txt", "mine.jsonl"}
    files = {file.name: subset for file, subset in published_files(tmp_path)}
    assert {file.rpartition("/")[2]: subset for file, subset in files.items()} == PUBLISHED[name]
