"""Compile a config's train step for TPUs or GPUs on a machine without them.

    ropewalk aot paper_2b --topology v5p:4x4x4 [dotted.field=value ...]
    ropewalk aot paper_2b --topology h100:8x4 [dotted.field=value ...]

The program is that of train.py (`training.step`, the same shardings and kernels), compiled by
libtpu (the `tpu` extra) or XLA for NVIDIA GPUs (the `gpu` extra) for these chips. The report shows
memory per device and whether it fits, the attention kernel, and the bytes that a device receives by
kind of collective. Time comes from measured rates: `--check --devices N`.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ropewalk.configs import allowed_config, find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.inherit import inherit
from ropewalk.tpu.topology import MEMORY_FRACTION, Machines, Topology, find
from ropewalk.utils.command_line import Parser, at_least, exit_with
from ropewalk.utils.messages import size

if TYPE_CHECKING:
    from ropewalk.tpu.compiled import Report


def command_line() -> Parser:
    """Return the parser."""
    parser = Parser(
        description=__doc__,
        epilog=overrides.OVERRIDES_HELP,
    )
    text = "name of a config, from the list of train.py --help, or FILE.py"
    parser.add_argument("config", metavar="CONFIG", type=allowed_config, help=text)
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
    from ropewalk.tpu.compiled import compile_for

    with parser.refusing(ValueError):
        report = compile_for(config, chips, arguments.members)
    if arguments.json:
        collectives = [dataclasses.asdict(collective) for collective in report.collectives]
        print(json.dumps(report._asdict() | {"collectives": collectives}))
    else:
        print(*_lines(chips, report), sep="\n")
    return 1 if report.problem else 0


def _lines(chips: Topology | Machines, report: "Report") -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"compiled in {report.compile_seconds:.0f} s"
    yield "mesh: " + ", ".join(f"{axis}={size}" for axis, size in report.mesh.items())
    yield report.attention
    if report.problem is not None:
        used = next((x for x in report.problem.splitlines() if "Used" in x), report.problem)
        yield f"does not fit: {used.strip()[:200]}; docs/scaling.md: Mesh by size"
    if report.peak is None:
        return
    memory = size(chips.chip.usable_memory)
    if isinstance(chips, Machines):
        memory += f" (XLA_PYTHON_CLIENT_MEM_FRACTION={MEMORY_FRACTION})"
    yield f"{'arguments':<12} {size(report.arguments or 0):>12} per device"
    fits = "does not fit" if report.problem else "fits"
    limit = "at most" if report.host_peak else "peak"
    yield f"{limit:<12} {size(report.peak):>12} of {memory}: {fits}"
    if report.host_peak:
        yield f"{'host':<12} {size(report.host_peak):>12} per device, in its memory"
    for kind in sorted({collective.kind for collective in report.collectives}):
        of_kind = [x for x in report.collectives if x.kind == kind]
        count, received = sum(x.count for x in of_kind), sum(x.received for x in of_kind)
        yield f"{kind:<18} {count:>6} a step, {size(received):>12} received per device"
    yield f"received in all    {size(sum(x.received for x in report.collectives)):>12} per device"


if __name__ == "__main__":
    exit_with(main)
