"""TPU slices by name: `v5p:4x4x4` is 64 chips of v5p in a cube. `chips.toml` has the chips.

`python -m tpu.topology NAME FIELD...` prints fields of a slice for the shell scripts, one per line.
It needs no JAX, so that it runs on a laptop with Python only.

Sizes count chips. Google's accelerator types, which are accepted too, count cores: `v5p-128` is
`v5p:4x4x4`, 64 chips. GKE's names of v5e have its prefix instead of `v5litepod`: `v5e-64`.
"""

import dataclasses
import difflib
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from utils.command_line import Parser


class Chip(NamedTuple):
    """A generation of TPU: an entry of `chips.toml`.

    Attributes:
      name: prefix of the names of its slices.
      device_kind: JAX's name of it; the key of `experiment.metrics.PEAK_FLOPS`.
      accelerator: Google's accelerator type without its number.
      runtime: the software version for JAX.
      gke_accelerator: GKE's node label cloud.google.com/gke-tpu-accelerator.
      memory_gib: GiB of HBM that libtpu offers to programs.
      memory_bandwidth: bytes/s of HBM.
      link_bandwidth: bytes/s of one link to a neighbour, in each direction.
      host_bandwidth: bytes/s between a chip and its host's memory.
      cores: per chip, as counted by Google's accelerator types.
      shapes: shapes of the available slices, one per number of chips.
    """

    name: str
    device_kind: str
    accelerator: str
    runtime: str
    gke_accelerator: str
    memory_gib: float
    memory_bandwidth: float
    link_bandwidth: float
    host_bandwidth: float
    cores: int
    shapes: list[str]

    @property
    def memory(self) -> int:
        """Bytes of HBM."""
        return int(self.memory_gib * 2**30)

    @property
    def links(self) -> int:
        """Number of links of a chip: two per dimension of the torus."""
        return 2 * len(self.shapes[0].split("x"))


_SHEET = tomllib.loads(Path(__file__).with_name("chips.toml").read_text(encoding="utf-8"))
CHIPS = {name: Chip(name=name, **row) for name, row in _SHEET.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """A slice: chips of one kind, linked in a torus or a mesh."""

    chip: Chip
    shape: str

    @property
    def name(self) -> str:
        """Name of the slice, here and in libtpu: `v5p:4x4x4`."""
        return f"{self.chip.name}:{self.shape}"

    @property
    def usable_memory(self) -> int:
        """Bytes of a chip's memory that a program may use."""
        return self.chip.memory

    @property
    def sides(self) -> tuple[int, ...]:
        """Chips along each dimension."""
        return tuple(map(int, self.shape.split("x")))

    @property
    def rings(self) -> tuple[bool, ...]:
        """True for each dimension that closes to a ring.

        On v5e and v6e these are dimensions of 16 chips. On v4 and v5p optical switches join the
        faces of a slice of 4x4x4 cubes: docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm.
        """
        if self.chip.links == 4:
            return tuple(side == 16 for side in self.sides)
        return (all(side % 4 == 0 for side in self.sides),) * len(self.sides)

    @property
    def num_chips(self) -> int:
        """Number of chips; each is one JAX device."""
        return math.prod(self.sides)

    @property
    def chips_per_host(self) -> int:
        """Number of chips of a host's VM."""
        return min(4, self.num_chips)

    @property
    def num_hosts(self) -> int:
        """Number of VMs; each runs one process."""
        return self.num_chips // self.chips_per_host

    @property
    def accelerator_type(self) -> str:
        """Google's name of the slice, such as `v5p-128`."""
        return f"{self.chip.accelerator}-{self.num_chips * self.chip.cores}"

    @property
    def runtime(self) -> str:
        """Software version of the VMs."""
        return self.chip.runtime


def find(name: str) -> Topology:
    """Return the slice called `name`.

    Raises:
      ValueError: if there is none; the message names the nearest slice.
    """
    kind, _, shape = name.partition(":")
    if kind in CHIPS and shape in CHIPS[kind].shapes:
        return Topology(chip=CHIPS[kind], shape=shape)
    # The chip with the nearest name, then its slice nearest in size (v5p-100, v5p:64, v5p:4x4).
    google_name = name.replace("v5e-", "v5litepod-")
    chip_name = re.split("[:-]", name)[0].replace("v5litepod", "v5e")
    (match,) = difflib.get_close_matches(chip_name, CHIPS, n=1, cutoff=0.0)
    slices = [Topology(chip=CHIPS[match], shape=known) for known in CHIPS[match].shapes]
    for topology in slices:
        if topology.accelerator_type == google_name:
            return topology
    num_chips = math.prod(map(int, re.findall(r"\d+", shape or name.partition("-")[2])))
    if not shape:
        num_chips /= CHIPS[match].cores
    nearest = min(slices, key=lambda s: abs(math.log(s.num_chips / max(1, num_chips))))
    raise ValueError(
        f"unknown topology {name!r}; nearest: {nearest.name} ({nearest.num_chips} chips, "
        f"Google's {nearest.accelerator_type})"
    )


def main() -> int:
    """Run the command line; exit with status 2 after one line for an unknown slice."""
    fields = ("accelerator_type", "runtime", "num_chips", "num_hosts", "chips_per_host")
    parser = Parser(prog="python -m tpu.topology", description=__doc__)
    parser.add_argument("name", help="v5e:8x8, v5p:4x4x4 ...")
    parser.add_argument("fields", nargs="*", choices=[*fields, []], metavar="FIELD")
    arguments = parser.parse_args()
    try:
        topology = find(arguments.name)
    except ValueError as error:
        parser.refuse(error)
    for field in arguments.fields or fields:
        print(getattr(topology, field))
    return 0


if __name__ == "__main__":
    sys.exit(main())
