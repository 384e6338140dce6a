"""The tensorflow-datasets builder of RedPajama-Data-1T and its sample.

It reads the published files, which you download yourself (the sample: 11 files, 1 billion tokens;
the full set: 2084 files, 2.7 TB unpacked), and writes ArrayRecord without TensorFlow.

    sample   arxiv_sample.jsonl  book_sample.jsonl  c4_sample.jsonl  cc_2019-30_sample.jsonl ...
    full     arxiv/*.jsonl  book/book.jsonl  c4/*.jsonl  common_crawl/2019-30/*.jsonl.zst
             github/*.jsonl  stackexchange/*.jsonl  wikipedia/*.jsonl
             or the names of urls.txt in other folders, as `wget -i urls.txt` leaves them
    shards   any *.jsonl, *.jsonl.gz, *.jsonl.zst whose lines have "red_pajama_subset"

    from data.redpajama.redpajama_dataset_builder import Builder
    builder = Builder(config="sample", data_dir=DIR)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=FILES), file_format="array_record"
    )
    builder.as_data_source(split="train")[0]

One process reads all files; `data.redpajama.beam` reads on many machines in parallel.
"""

import collections
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from data.files import list_json_lines
from data.json_lines import first_record, json_records
from data.source import LISTED, SKIP_ADVICE, SUBSET_NAMES, SUBSETS, InputFile
from utils.files import write_atomically
from utils.limits import read_json
from utils.messages import quoted

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

PROBLEMS = "problems"  # folder beside the records

# A file and the subset that its name gives; None: its lines name the subset.
PublishedFile = tuple[InputFile, str | None]


def _sample_subset(name: str) -> str | None:
    match = _SAMPLE_FILE.fullmatch(name.rpartition("/")[2])
    return SUBSET_NAMES.get(match[1]) if match else None


def _full_subset(name: str) -> str | None:
    """Return the subset that a folder names, or else the name of the file."""
    *folders, file = name.split("/")
    compression = r"(\.gz|\.zst(\.\d)?)?"
    by_name = (s for s, pattern in _NAMES.items() if re.fullmatch(pattern + compression, file))
    return next((folder for folder in reversed(folders) if folder in SUBSETS), next(by_name, None))


# Functions from a file name to its subset, None for a file outside the layout. "shards" has all.
_SUBSET_OF = {"sample": _sample_subset, "full": _full_subset}


def layout(root: Path) -> str:
    """Return the builder's config for the files: "sample", "full" or "shards".

    Raises:
      ValueError: if there are no files.
    """
    names = [file.name for file in list_json_lines(root).files]
    matching = (config for config, subset_of in _SUBSET_OF.items() if any(map(subset_of, names)))
    return next(matching, "shards")


def published_files(config_name: str, root: Path) -> list[PublishedFile]:
    """Return the files of a layout.

    Raises:
      ValueError: if there is none, or a file of "shards" does not name a subset in its first line.
    """
    files, subset_of = list_json_lines(root).files, _SUBSET_OF.get(config_name)
    if subset_of is None:
        for file in files:
            if problem := _subset_problem(first_record(file.path)):
                raise ValueError(
                    f"{file.path}: not a name of RedPajama's urls.txt or sample, and in its first "
                    f"line {problem}; use data.source=jsonl for other files"
                )
        return [(file, None) for file in files]
    published: list[PublishedFile] = [
        (file, subset) for file in files if (subset := subset_of(file.name))
    ]
    if not published:
        raise ValueError(f"{root}: no file of RedPajama's {config_name!r} layout")
    return published


def _subset_problem(record: dict) -> str | None:
    name = record.get("red_pajama_subset")
    if name in SUBSET_NAMES:
        return None
    return f'"red_pajama_subset" is {quoted(name)}, none of {", ".join(SUBSETS)}'


class Builder(tfds.core.GeneratorBasedBuilder):
    """RedPajama: text, meta (JSON, as a string) and red_pajama_subset of every document.

    Args:
      skip_bad_documents: leave bad documents out, and write their problems to the folder
        `problems`; otherwise the first one raises ValueError.
      use_beam: read each file in a worker of a Beam pipeline.
      **kwargs: arguments of tensorflow-datasets: config, data_dir ...
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "RedPajama-Data-1T v1.0.0 and RedPajama-Data-1T-Sample."}  # noqa: RUF012
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Put the files of togethercomputer/RedPajama-Data-1T-Sample, or those of "
        "RedPajama-Data-1T's urls.txt, with or without their folders, into manual_dir."
    )
    # There are no downloads to check. A search for checksums would import importlib_resources,
    # which tensorflow-datasets 4.9.10 does not declare.
    url_infos = None
    BUILDER_CONFIGS = [  # noqa: RUF012
        tfds.core.BuilderConfig(name="sample", description="RedPajama-Data-1T-Sample's files"),
        tfds.core.BuilderConfig(name="full", description="RedPajama-Data-1T's files"),
        tfds.core.BuilderConfig(name="shards", description="Files whose lines name their subset"),
    ]

    def __init__(self, *, skip_bad_documents: bool = False, use_beam: bool = False, **kwargs):
        self._skips, self._use_beam = skip_bad_documents, use_beam
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {name: tfds.features.Text() for name in ("text", "meta", "red_pajama_subset")}
            ),
            supervised_keys=None,
            homepage="https://github.com/togethercomputer/RedPajama-Data/tree/rp_v1",
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        splits = collections.defaultdict(list)
        layout_name = self.builder_config.name  # pyright: ignore[reportOptionalMemberAccess]
        for published in published_files(layout_name, Path(dl_manager.manual_dir)):
            splits["validation" if published[0].validation else "train"].append(published)
        return {name: self._generate_examples(files) for name, files in splits.items()}

    def _generate_examples(self, files: list[PublishedFile]):
        problems = Path(self.data_dir) / PROBLEMS if self._skips else None
        read = functools.partial(examples, problems=problems)
        if not self._use_beam:
            return itertools.chain.from_iterable(map(read, files))
        import apache_beam as beam  # pyright: ignore[reportMissingImports] - of the extra beam

        return beam.Create(files) | beam.Reshuffle() | beam.FlatMap(read)


def examples(published: PublishedFile, problems: Path | None) -> Iterator[tuple[str, dict]]:
    """Yield key and example of each good document of a file.

    Args:
      published: the file.
      problems: folder for the problems of bad documents; None: the first one raises ValueError.
    """
    source, subset = published
    count, first = 0, []
    for line, record, problem in json_records(source.path):
        if problem is None and subset is None:
            problem = _subset_problem(record)
        if problem is None:
            yield (
                f"{source.name}:{line}",
                {
                    "text": record["text"],
                    "meta": meta_of(record),
                    "red_pajama_subset": subset or SUBSET_NAMES[record["red_pajama_subset"]],
                },
            )
            continue
        problem = f"{source.path}:{line}: {problem}"
        if problems is None:
            raise ValueError(f"{problem}; {SKIP_ADVICE}")
        count, first = count + 1, [*first, problem][:LISTED]
    if problems and count:
        problems.mkdir(exist_ok=True)
        name = hashlib.sha256(source.name.encode()).hexdigest()
        content = json.dumps({"file": source.name, "count": count, "first": first})
        write_atomically(problems / f"{name}.json", content)


def skipped_documents(builder: Builder) -> tuple[int, list[str]]:
    """Return the number of bad documents that were left out, and the first of their problems."""
    metadata: dict = dict(builder.info.metadata or {})  # of data that an older version built
    first = list(metadata.get("first_skipped", []))
    reports = [read_json(file) for file in (Path(builder.data_dir) / PROBLEMS).glob("*.json")]
    for report in sorted(reports, key=lambda report: report["file"]):
        first += report["first"]
    count = int(metadata.get("skipped", 0)) + sum(report["count"] for report in reports)
    return count, first[:LISTED]


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
