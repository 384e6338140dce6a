"""The tensorflow-datasets builder of RedPajama-Data-1T and its sample.

It reads the published files, which you download yourself (the sample: 11 files, 1 billion tokens;
the full set: 2084 files, 2.7 TB unpacked), and writes ArrayRecord without TensorFlow.

    sample   arxiv_sample.jsonl  book_sample.jsonl  c4_sample.jsonl  cc_2019-30_sample.jsonl ...
    full     arxiv/*.jsonl  book/book.jsonl  c4/*.jsonl  common_crawl/2019-30/*.jsonl.zst
             github/*.jsonl  stackexchange/*.jsonl  wikipedia/*.jsonl
             or the names of urls.txt in other folders, as `wget -i urls.txt` leaves them
    shards   any *.jsonl, *.jsonl.gz, *.jsonl.zst whose lines have "red_pajama_subset"

    from ropewalk.data.redpajama.redpajama_dataset_builder import Builder
    builder = Builder(data_dir=DIR)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=FILES), file_format="array_record"
    )
    builder.as_data_source(split="train")[0]

One process reads all files; `data.redpajama.beam` reads on many machines in parallel.
"""

import collections
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from ropewalk.data.json_lines import first_record, json_records
from ropewalk.data.source import SUBSET_NAMES, SUBSETS, InputFile
from ropewalk.data.sources.jsonl import Jsonl
from ropewalk.utils.messages import quoted

_SAMPLE_FILE = re.compile(r"([a-z0-9]+)(_\d{4}-\d{2})?_sample\.jsonl(\.gz|\.zst)?")
# The names in urls.txt, after the folders of their subsets.
_NAMES = {
    "arxiv": r"arxiv_[0-9a-f-]{36}\.jsonl",
    "book": r"book\.jsonl",
    "c4": r"c4-train\.\d{5}-of-01024\.jsonl",
    "common_crawl": r"en_(head|middle)_\d{4}\.json\.gz\.dedup\.classifier\.jsonl",
    "github": r"filtered_[0-9a-f]{32}\.sampled\.jsonl",
    "stackexchange": r"stackexchange\.jsonl",
    "wikipedia": r"wiki\.jsonl",
}

FEATURES = ("text", "meta", "red_pajama_subset", "problem")

# A file and the subset that its name gives; None: its lines name the subset.
PublishedFile = tuple[InputFile, str | None]


def published_files(root: Path) -> list[PublishedFile]:
    """Return the files with a published name; without any, all files, if their lines name a subset.

    Raises:
      ValueError: if there are no files, or one does not name a subset in its first line.
    """
    files = Jsonl(path=str(root)).files
    published: list[PublishedFile] = [
        (file, subset) for file in files if (subset := _subset_of(file.name))
    ]
    if published:
        return published
    for file in files:
        if problem := _subset_problem(first_record(file.path)):
            raise ValueError(
                f"{file.path}: not a name of RedPajama's urls.txt or sample, and in its first "
                f"line {problem}; use data.source=jsonl for other files"
            )
    return [(file, None) for file in files]


def _subset_of(name: str) -> str | None:
    """Return the subset of a published file, by its name in the sample, a folder, or urls.txt."""
    *folders, file = name.split("/")
    if sample := _SAMPLE_FILE.fullmatch(file):
        return SUBSET_NAMES.get(sample[1])
    compression = r"(\.gz|\.zst(\.\d)?)?"
    by_name = (s for s, pattern in _NAMES.items() if re.fullmatch(pattern + compression, file))
    return next((folder for folder in reversed(folders) if folder in SUBSETS), next(by_name, None))


def _subset_problem(record: dict) -> str | None:
    name = record.get("red_pajama_subset")
    if name in SUBSET_NAMES:
        return None
    return f'"red_pajama_subset" is {quoted(name)}, none of {", ".join(SUBSETS)}'


class Builder(tfds.core.GeneratorBasedBuilder):
    """RedPajama: text, meta (JSON, as a string) and red_pajama_subset of every document.

    A bad document has a problem in place of its text; its meta is the number of damaged bytes.

    Args:
      use_beam: read each file in a worker of a Beam pipeline.
      **kwargs: arguments of tensorflow-datasets: data_dir ...
    """

    VERSION = tfds.core.Version("2.0.0")
    RELEASE_NOTES = {  # noqa: RUF012
        "1.0.0": "RedPajama-Data-1T v1.0.0 and RedPajama-Data-1T-Sample.",
        "2.0.0": "Bad documents have a problem and no text; one config for all layouts.",
    }
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Put the files of togethercomputer/RedPajama-Data-1T-Sample, or those of "
        "RedPajama-Data-1T's urls.txt, with or without their folders, into manual_dir."
    )
    # There are no downloads to check. A search for checksums would import importlib_resources,
    # which tensorflow-datasets 4.9.10 does not declare.
    url_infos = None

    def __init__(self, *, use_beam: bool = False, **kwargs):
        self._use_beam = use_beam
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in FEATURES}),
            supervised_keys=None,
            homepage="https://github.com/togethercomputer/RedPajama-Data/tree/rp_v1",
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        splits = collections.defaultdict(list)
        for published in published_files(Path(dl_manager.manual_dir)):
            splits["validation" if published[0].validation else "train"].append(published)
        return {name: self._generate_examples(files) for name, files in splits.items()}

    def _generate_examples(self, files: list[PublishedFile]):
        if not self._use_beam:
            return itertools.chain.from_iterable(map(examples, files))
        import apache_beam as beam  # pyright: ignore[reportMissingImports] - of the extra beam

        return beam.Create(files) | beam.Reshuffle() | beam.FlatMap(examples)


def examples(published: PublishedFile) -> Iterator[tuple[str, dict]]:
    """Yield key and example of each document of a file; bad ones have a problem and no text."""
    source, file_subset = published
    for line, record, problem in json_records(source.path):
        damaged = str(record.get("damaged_bytes", "")) if problem else ""
        if problem is None and file_subset is None:
            problem = _subset_problem(record)
        subset = file_subset or SUBSET_NAMES.get(str(record.get("red_pajama_subset")), "")
        yield (
            f"{source.name}:{line}",
            {
                "text": "" if problem else record["text"],
                "meta": damaged if problem else meta_of(record),
                "red_pajama_subset": "" if problem else subset,
                "problem": f"{source.name}:{line}: {problem}" if problem else "",
            },
        )


def meta_of(record: dict) -> str:
    """Return the document's meta as JSON text.

    The sample stores it as a string, the full set as an object. Common Crawl's lines store it as
    top-level fields (source, pred_label, ...).
    """
    meta = record.get("meta")
    if isinstance(meta, str):
        return meta
    if meta is None:
        meta = {k: v for k, v in record.items() if k not in ("text", "meta", "red_pajama_subset")}
    return json.dumps(meta, ensure_ascii=False)
