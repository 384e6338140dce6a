"""RedPajama (Together, 2023) as published, through tensorflow-datasets, without TensorFlow."""

import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.data.content import content_digests
from ropewalk.data.source import (
    SUBSETS,
    Document,
    InputFile,
    LeftOut,
    OnBytes,
    Source,
    by_corpus,
    subset_name,
)
from ropewalk.data.sources.jsonl import Jsonl
from ropewalk.utils.manifest import digest
from ropewalk.utils.paths import local

if TYPE_CHECKING:
    from ropewalk.data.redpajama.redpajama_dataset_builder import Builder, PublishedFile


class RedPajama(Source):
    """The published files of RedPajama-Data-1T or its sample. They become ArrayRecord once.

    A file of this source is a split of the tensorflow-datasets builder.
    """

    needs_path = True

    def check(self) -> None:
        """Also refuse shares that keep nothing, as every document is in one of these subsets."""
        super().check()
        shares = by_corpus(self.subset_shares)
        if all(shares.get(subset_name(name)) == 0 for name in self.subsets()):
            raise ValueError("data.subset_shares keeps no document: all subsets have share 0")

    @functools.cached_property
    def _builder(self) -> "Builder":
        logging.getLogger("absl").setLevel(logging.WARNING)
        return build(str(self.path), self.prepared_root)

    @functools.cached_property
    def files(self) -> list[InputFile]:
        """Splits of the builder; the first access builds them."""
        info = self._builder.info
        return [
            InputFile(
                path=Path(self._builder.data_dir) / split,
                name=f"{info.full_name}/{split}",
                size=int(info.splits[split].num_bytes),
                validation=split == "validation",
            )
            for split in sorted(info.splits)
        ]

    def read_file(self, file: int, line: int, on_bytes: OnBytes) -> Iterator[Document]:
        """Yield the documents of a split; a line is the number of a record, from 1."""
        split = self.files[file].path.name
        records = self._builder.as_data_source(split)  # pyright: ignore[reportCallIssue]
        for number in range(line, len(records) + 1):
            record = records[number - 1]
            text, subset, problem, meta = (
                record[name].decode() for name in ("text", "red_pajama_subset", "problem", "meta")
            )
            on_bytes(sum(map(len, record.values())))
            damaged = int(meta or 0) if problem else 0
            yield Document(text, file, number, subset or None, problem or None, damaged)

    @functools.cached_property
    def _published(self) -> "list[PublishedFile]":
        from ropewalk.data.redpajama.redpajama_dataset_builder import published_files

        return published_files(Path(str(self.path)))

    @property
    def inputs(self) -> list[InputFile]:
        """The published files."""
        return [file for file, _ in self._published]

    @property
    def left_out(self) -> list[LeftOut]:
        """Files with other names at `data.path`."""
        listed = Jsonl(path=self.path)
        names = {file.name for file in self.inputs}
        unpublished = [file.name for file in listed.files if file.name not in names]
        return listed.left_out + [LeftOut(name, "not a published name") for name in unpublished]

    def corpora(self) -> dict[str, Path]:
        """Return a file of each subset in the names of the files."""
        return {subset: file.path for file, subset in self._published if subset}

    def subsets(self) -> set[str]:
        """Return the subsets in the names of the files, or all if no name has one."""
        return {*self.corpora()} or set(SUBSETS)


def build(path: str, prepared_root: str, *, beam_options: Any = None) -> "Builder":
    """Return a builder whose ArrayRecord files exist; build them if they are missing.

    Args:
      path: folder of the published files.
      prepared_root: root of the result, whose folder is a hash of the files' names and content.
      beam_options: options of a Beam pipeline that reads the files; None: this process does.

    Raises:
      ValueError: if a file changes while it is read; the folder, of its old hash, is deleted.
    """
    import tensorflow_datasets as tfds

    from ropewalk.data.redpajama.redpajama_dataset_builder import Builder, published_files

    root = Path(path)
    files = [file for file, _ in published_files(root)]
    digests = content_digests(files, local(prepared_root))
    names = [[file.name, file.validation] for file in files]
    key = digest([names, digests])[:12]
    builder = Builder(
        data_dir=local(prepared_root) / "tensorflow_datasets" / key,
        file_format="array_record",
        use_beam=beam_options is not None,
    )
    options = tfds.download.DownloadConfig(manual_dir=root, beam_options=beam_options)
    is_new = not builder.data_path.exists()
    builder.download_and_prepare(download_config=options, file_format="array_record")
    if is_new and content_digests(files, local(prepared_root)) != digests:
        builder.data_path.rmtree()
        raise ValueError(f"{path}: a file changed while it was read; run the command again")
    return builder
