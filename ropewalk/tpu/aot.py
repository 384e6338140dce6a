"""Compile a config's train step for TPUs or GPUs on a machine without them.

    ropewalk aot paper_2b --topology v5p:4x4x4 [dotted.field=value ...]
    ropewalk aot paper_2b --topology h100:8x4 [dotted.field=value ...]

The program is that of train.py (`training.step`, the same shardings and kernels), compiled by
libtpu (the `tpu` extra) or XLA for NVIDIA GPUs (the `gpu` extra) for these chips. The report shows
memory per chip and whether it fits, collectives beside the least traffic of FSDP, FLOPs, and the
least times of a step:

    compute      FLOPs of the step over the chips' dense bfloat16 peak: matrix products of the
                 traced program with recomputation, and of kernels the blocks on and below the
                 diagonal
    memory       bytes to and from HBM, read from the compiled program, over HBM bandwidth
    host         bytes to and from the host's memory (remat=offload), over the chip's share of PCIe
    network      bytes that a chip receives over the bandwidth of its links: a group of chips uses
                 the links of each torus dimension that it spans, two of one that closes to a ring;
                 of GPUs, NVLink or PCIe within a host, and between hosts each GPU's network card

With perfect overlap a step takes the longest of these times, and without overlap their sum; the
report gives MFU, tokens per second and the run's chip-hours for both. Both ignore input, stragglers
and partly filled matrix units, so that the sum is no upper bound: published runs have taken longer.
"""

import ropewalk.utils.environment  # noqa: F401 - first: it checks that packages are installed

# isort: split
import argparse
import dataclasses
import json

from rich.console import Console

from ropewalk.configs import config_argument, find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.inherit import inherit
from ropewalk.tpu.topology import Machines, Topology, find
from ropewalk.utils.command_line import Parser, at_least, exit_with


def command_line() -> Parser:
    """Return the parser."""
    parser = Parser(
        description=__doc__,
        epilog=overrides.OVERRIDES_HELP,
    )
    text = "name of a config, from the list of train.py --help, or FILE.py"
    parser.add_argument("config", metavar="CONFIG", type=config_argument, help=text)
    chips = "TPUs: v5e:8x8, v5p-128 ...; GPUs: t4, h100:8, h100:8x4 (4 hosts) ..."
    parser.add_argument("--topology", required=True, metavar="T", help=chips)
    members = "number of members of a sweep in one program (%(default)s)"
    parser.add_argument("--members", type=at_least(1), default=1, metavar="N", help=members)
    typed = overrides.typed
    parser.add_argument("overrides", nargs="*", type=typed, metavar="dotted.field=value")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    return parser


def parse(parser: Parser) -> tuple[argparse.Namespace, Topology | Machines, ExperimentConfig]:
    """Return the arguments, their chips and their config; exit with 2 for a mistake in them."""
    arguments = parser.parse_intermixed_args()
    with parser.refusing(ValueError):
        chips = find(arguments.topology)
        return arguments, chips, inherit(find_config(arguments.config), arguments.overrides)


def main() -> int:
    """Run the command line; exit with 2 for a user's mistake, 1 if the step does not fit."""
    parser = command_line()
    arguments, chips, config = parse(parser)
    # Imported late: JAX takes seconds, which help and invalid arguments do not need.
    from ropewalk.tpu.cost import analyze
    from ropewalk.tpu.report import show

    with parser.refusing(ValueError):
        report = analyze(config, chips, arguments.members)
    if arguments.json:
        collectives = [dataclasses.asdict(collective) for collective in report.collectives]
        print(json.dumps(report._asdict() | {"collectives": collectives}))
    else:
        show(chips, report, Console(highlight=False, width=100))
    return 1 if report.problem else 0


if __name__ == "__main__":
    exit_with(main)
