"""RedPajama by Apache Beam: the same documents in the same order, made by many processes.

    python -m data.redpajama.beam --path FILES --out runs/data \\
        --runner=DirectRunner --direct_running_mode=multi_processing --direct_num_workers=32

What follows the options below goes to Beam: DirectRunner uses one machine; DataflowRunner,
FlinkRunner and SparkRunner a cluster, whose workers need this repository, its packages and both
folders on a file system that all of them see. Afterwards `python -m data.prepare --source redpajama
--path FILES` finds what was made here under its --out, and only tokenizes.

A file is read by one process from its beginning to its end, so the largest (book/book.jsonl, some
100 GB) decides how long the reading takes at least. Needs the `beam` extra, in an environment of
its own: apache-beam wants an older protobuf and pyarrow than the locked ones.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam  # pyright: ignore[reportMissingImports]
import tensorflow_datasets as tfds
from apache_beam.options import pipeline_options  # pyright: ignore[reportMissingImports]
from tensorflow_datasets.core import registered

from data.redpajama import redpajama_dataset_builder as builder_lib
from data.redpajama.source import build
from data.sources import LISTED
from settings.commands import Parser

# TFDS keeps one builder a name, and this one goes by the other's.
with registered.skip_registration():

    class BeamBuilder(builder_lib.Builder):
        """`Builder`, in parallel; what it makes, `Builder` reads."""

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
            report = json.loads(self._report.read_text("utf-8"))
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
            raise ValueError(problem)


def _write_report(count: int, first: list[str], path: Path) -> None:
    path.write_text(json.dumps({"skipped": count, "first_skipped": first}), "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """`python -m data.redpajama.beam`: exit status 0, or 2 after one line about what is wrong."""
    parser = Parser(
        prog="python -m data.redpajama.beam",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--path", metavar="DIR", required=True, help="the files as published")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="runs/data",
        help="root of the prepared data, as data.prepare's (default: %(default)s)",
    )
    parser.add_argument(
        "--on-bad-document",
        choices=("error", "skip"),
        default="error",
        help="stop at a broken document, or leave such out and count them (default: %(default)s)",
    )
    options, beam_options = parser.parse_known_args(arguments)
    try:
        builder = build(
            BeamBuilder,
            options.path,
            Path(options.out) / "tensorflow_datasets",
            skip=options.on_bad_document == "skip",
            beam_options=pipeline_options.PipelineOptions(beam_options),
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(builder.data_dir)
    for split, info in sorted((builder.info.splits or {}).items()):
        print(f"  {split}: {info.num_examples:,} documents in {info.num_shards} shards")
    skipped = dict(builder.info.metadata or {}).get("skipped", 0)
    if skipped:
        print(f"  left out {skipped} documents; the first are named in metadata.json there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
