"""RedPajama as `data.prepare` reads it: through the builder's ArrayRecord files."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from data.redpajama import redpajama_dataset_builder as builder_lib
from data.sources import Document, InputFile


def build(
    kind: type[builder_lib.Builder], path: str, data_dir: Path, *, skip: bool, **download: Any
) -> builder_lib.Builder:
    """A builder that has read the files at `path`, now or before.

    Args:
      kind: what reads them.
      path: the files as published.
      data_dir: what is made lies there under a name made from the files' names and sizes.
      skip: leave out broken documents.
      **download: fields of tensorflow-datasets' DownloadConfig.

    Raises:
      ValueError: on bad input, as `FILE:LINE: what is wrong`.
    """
    root = Path(path)
    name = builder_lib.layout(root)
    published = [[file.name, file.size] for file, _ in builder_lib.published_files(name, root)]
    key = hashlib.sha256(json.dumps(published).encode()).hexdigest()[:12]
    builder = kind(
        config=name,
        data_dir=data_dir / key,
        file_format="array_record",
        skip_bad_documents=skip,
    )
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(manual_dir=root, **download),
        file_format="array_record",
    )
    return builder


class RedPajama:
    """The builder's splits as input files, made from the published files first where missing.

    Args:
      path: the files as published.
      data_dir: where the builder keeps what it makes, under a name made from the files'.
      skip: leave out broken documents.

    Attributes:
      files: one per split.
      skipped: number of broken documents left out, and the first of them.

    Raises:
      ValueError: on bad input, as `FILE:LINE: what is wrong`.
    """

    def __init__(self, path: str, data_dir: Path, *, skip: bool, show_progress: bool):
        if not show_progress:
            tfds.disable_progress_bar()
        logging.getLogger("absl").setLevel(logging.WARNING)
        builder = build(builder_lib.Builder, path, data_dir, skip=skip)
        metadata = builder.info.metadata or {}
        self.skipped = (int(metadata.get("skipped", 0)), list(metadata.get("first_skipped", [])))
        names = sorted(builder.info.splits)
        self._sources = [
            builder.as_data_source(split)  # pyright: ignore[reportCallIssue]
            for split in names
        ]
        self.files = [
            InputFile(
                path=Path(builder.data_dir) / split,
                name=f"{builder.info.full_name}/{split}",
                size=int(builder.info.splits[split].num_bytes),
                validation=split == "validation",
            )
            for split in names
        ]

    def read(
        self, *, start: tuple[int, int] = (0, 1), on_bytes: Callable[[int], None] = lambda n: None
    ) -> Iterator[Document]:
        """Documents in the builder's order, from (split, number from 1) on."""
        for index in range(start[0], len(self._sources)):
            source = self._sources[index]
            first = start[1] if index == start[0] else 1
            for line in range(first, len(source) + 1):
                record = source[line - 1]
                text, subset = record["text"].decode(), record["red_pajama_subset"].decode()
                on_bytes(len(record["text"]) + len(record["meta"]) + len(subset))
                yield Document(text=text, file=index, line=line, subset=subset)
