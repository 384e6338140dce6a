"""`Builder` as a Beam pipeline, for `data.redpajama.beam`.

It is a separate module because tensorflow-datasets needs the package of a builder's module, which
`__main__` lacks, and because Beam's workers import it by name.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam  # pyright: ignore[reportMissingImports]
import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered

from data.redpajama import redpajama_dataset_builder as builder_lib
from data.source import LISTED, SKIP_ADVICE
from utils.limits import read_json

# TFDS registers one builder per name, and both have the same name.
with registered.skip_registration():

    class BeamBuilder(builder_lib.Builder):
        """Parallel `Builder`; `Builder` reads its files."""

        name = "redpajama"

        def _split_generators(self, dl_manager: tfds.download.DownloadManager, pipeline):
            self._report = Path(self.data_dir) / "skipped.json"
            generators, problems = {}, []
            for split, files in self._splits(dl_manager).items():
                read = (
                    pipeline
                    | f"files of {split}" >> beam.Create(files)
                    | f"spread {split}" >> beam.Reshuffle()
                    | f"read {split}"
                    >> beam.FlatMap(_read, skip=self._skip_bad_documents).with_outputs(
                        "problem", main="example"
                    )
                )
                generators[split] = read.example
                problems.append(read.problem)
            problems = problems | "problems" >> beam.Flatten()
            first = problems | "first" >> beam.combiners.Top.Smallest(LISTED)
            _ = (
                problems
                | "count" >> beam.combiners.Count.Globally()
                | "report" >> beam.Map(_write_report, beam.pvalue.AsSingleton(first), self._report)
            )
            return generators

        def _process_pipeline_result(self, pipeline_result) -> None:
            report = read_json(self._report)
            self._report.unlink()
            if report["skipped"]:
                self.info.metadata.update(report)  # pyright: ignore[reportOptionalMemberAccess]


def _read(published: builder_lib.PublishedFile, *, skip: bool) -> Iterator:
    for key, example, problem in builder_lib.examples(published):
        if problem is None:
            yield key, example
        elif skip:
            yield beam.pvalue.TaggedOutput("problem", problem)
        else:
            raise ValueError(f"{problem}; {SKIP_ADVICE}")


def _write_report(count: int, first: list[str], path: Path) -> None:
    path.write_text(json.dumps({"skipped": count, "first_skipped": first}), "utf-8")
