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
import difflib
import sys

from settings.commands import Parser
from settings.places import local

_OPTIONS = ("--path", "--out", "--on-bad-document")


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
    for word in beam_options:  # Beam ignores what it does not know
        name = word.partition("=")[0]
        if close := difflib.get_close_matches(name, _OPTIONS, n=1, cutoff=0.8):
            parser.error(f"unknown option {name}; did you mean {close[0]}?")
    # After parsing: --help needs neither Beam nor tensorflow-datasets.
    try:
        from apache_beam.options import pipeline_options  # pyright: ignore[reportMissingImports]
    except ImportError:
        parser.error(
            "this needs apache-beam: pip install '.[beam]' in the folder of ropewalk, in an "
            "environment of its own"
        )
    from data.redpajama.in_parallel import BeamBuilder
    from data.redpajama.source import build

    try:
        builder = build(
            BeamBuilder,
            options.path,
            local(options.out) / "tensorflow_datasets",
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
