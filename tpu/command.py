"""Arguments of tpu.aot, checked without JAX, which takes seconds to start."""

import argparse
import math
import re

from ropewalk.configs import find_config
from ropewalk.experiment import overrides
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.inherit import inherit
from ropewalk.tpu import gpu, topology
from ropewalk.tpu.gpu import GPUS, Machines
from ropewalk.tpu.topology import CHIPS, Topology
from ropewalk.utils.command_line import Parser, at_least
from ropewalk.utils.messages import nearest


def find_topology(name: str) -> Topology | Machines:
    """Return the TPU slice or the machines with GPUs called `name`.

    Raises:
      ValueError: if there are none; the message names the nearest.
    """
    kind = name.partition(":")[0]
    if kind in GPUS:
        return gpu.find(name)
    known = [*CHIPS, "v5litepod", *GPUS]
    if re.split("[:-]", name)[0] not in known:
        raise ValueError(f"unknown topology {name!r}; {nearest(kind, known)}")
    return topology.find(name)


def command_line(program: str, description: str | None) -> Parser:
    """Return the parser."""
    parser = Parser(
        prog=program,
        description=description,
        epilog=overrides.OVERRIDES_HELP,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "config", metavar="CONFIG", help="name of a config; train.py --help lists them"
    )
    chips = "TPUs: v5e:8x8, v5p-128 ...; GPUs: t4, h100:8, h100:8x4 (4 hosts) ..."
    parser.add_argument("--topology", required=True, metavar="T", help=chips)
    members = "number of members of a sweep in one program (%(default)s)"
    parser.add_argument("--members", type=at_least(1), default=1, metavar="N", help=members)
    typed = overrides.typed
    parser.add_argument("overrides", nargs="*", type=typed, metavar="dotted.field=value")
    return parser


def parse(parser: Parser) -> tuple[argparse.Namespace, Topology | Machines, ExperimentConfig]:
    """Return the arguments, their chips and their config; exit with 2 for a mistake in them."""
    arguments = parser.parse_intermixed_args()
    try:
        chips = find_topology(arguments.topology)
        return arguments, chips, inherit(find_config(arguments.config), arguments.overrides)
    except ValueError as error:
        parser.refuse(error)


def amount(num_bytes: float) -> str:
    """Return bytes in the largest fitting unit, up to TiB."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    power = min(4, int(math.log2(num_bytes) / 10))
    return f"{num_bytes / 1024**power:.2f} {'KMGT'[power - 1]}iB"
