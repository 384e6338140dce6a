"""Command that reads RedPajama with Apache Beam: equal documents, equal order, many processes.

    python -m ropewalk.data.redpajama.beam --path FILES --out runs/data \\
        --runner=DirectRunner --direct_running_mode=multi_processing --direct_num_workers=32

Options not listed below go to Beam: DirectRunner uses one machine; DataflowRunner, FlinkRunner and
SparkRunner use a cluster, whose workers need this repository, its packages and both folders on a
shared file system. Afterwards `ropewalk prepare --source redpajama --path FILES` finds the
result under its --out and only tokenizes it.

One process reads a file from beginning to end, so the largest file (book/book.jsonl, some 100 GB)
sets the minimum time. Needs the `beam` extra in a separate environment: apache-beam requires an
older protobuf and pyarrow than the locked ones.
"""

import sys

from ropewalk.utils.command_line import Parser
from ropewalk.utils.messages import counted


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line about the error."""
    parser = Parser(description=__doc__)
    parser.add_argument("--path", metavar="DIR", required=True, help="the files as published")
    text = "root of the prepared data, as for data.prepare (default: %(default)s)"
    parser.add_argument("--out", metavar="DIR", default="runs/data", help=text)
    options, beam_options = parser.parse_known_args(arguments)
    # After parsing: --help needs neither Beam nor tensorflow-datasets.
    try:
        from apache_beam.options import pipeline_options  # pyright: ignore[reportMissingImports]
    except ImportError:
        parser.error(
            "this needs apache-beam: pip install '.[beam]' in the folder of ropewalk, in a "
            "separate environment"
        )
    from ropewalk.data.sources.redpajama import build

    with parser.refusing(ValueError, OSError):
        pipeline = pipeline_options.PipelineOptions(beam_options)
        builder = build(options.path, options.out, beam_options=pipeline)
    print(builder.data_dir)
    for split, info in sorted((builder.info.splits or {}).items()):
        documents = counted(info.num_examples, "documents")
        print(f"  {split}: {documents} in {counted(info.num_shards, 'shards')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
