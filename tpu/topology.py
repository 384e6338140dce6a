"""TPU slices by name: `v5p:4x4x4` is 64 chips of v5p in a cube. `chips.toml` has the chips.

`python -m tpu.topology NAME FIELD...` prints fields of a slice, one a line, for the shell scripts;
this file imports nothing but the standard library, so that a laptop without JAX can run it.

Chips are counted, not cores: Google's accelerator type `v5p-128` is `v5p:4x4x4`, 64 chips.
"""

import dataclasses
import difflib
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from settings.commands import Parser


class Chip(NamedTuple):
    """A generation of TPU, as `chips.toml` lists them.

    Attributes:
      name: as in the name of a slice.
      device_kind: what JAX calls it; the key of `experiment.metrics.PEAK_FLOPS`.
      accelerator: Google's accelerator type without its number.
      runtime: the software version for JAX.
      gke_accelerator: GKE's node label cloud.google.com/gke-tpu-accelerator.
      memory_gib: GiB of HBM.
      memory_bandwidth: bytes/s of HBM.
      link_bandwidth: bytes/s of one link to a neighbour, in each direction.
      host_bandwidth: bytes/s between a chip and its host's memory.
      cores: per chip, which Google's accelerator types of this chip count.
      shapes: the slices that can be had, one for each number of chips.
    """

    name: str
    device_kind: str
    accelerator: str
    runtime: str
    gke_accelerator: str
    memory_gib: int
    memory_bandwidth: float
    link_bandwidth: float
    host_bandwidth: float
    cores: int
    shapes: list[str]

    @property
    def memory(self) -> int:
        """Bytes of HBM."""
        return self.memory_gib * 2**30

    @property
    def links(self) -> int:
        """Two for each dimension of the torus."""
        return 2 * len(self.shapes[0].split("x"))


_SHEET = tomllib.loads(Path(__file__).with_name("chips.toml").read_text(encoding="utf-8"))
CHIPS = {name: Chip(name=name, **row) for name, row in _SHEET.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """A slice: chips of one kind, each linked to its neighbours."""

    chip: Chip
    shape: str

    @property
    def name(self) -> str:
        """`v5p:4x4x4`, which is also libtpu's name of it."""
        return f"{self.chip.name}:{self.shape}"

    @property
    def sides(self) -> tuple[int, ...]:
        """Chips along each dimension."""
        return tuple(map(int, self.shape.split("x")))

    @property
    def rings(self) -> tuple[bool, ...]:
        """Whether each dimension closes to a ring.

        Where it is 16 long (v5e, v6e), or the slice made of whole cubes of 4 (v4, v5p), whose faces
        optical switches join: docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm.
        """
        if self.chip.links == 4:
            return tuple(side == 16 for side in self.sides)
        return (all(side % 4 == 0 for side in self.sides),) * len(self.sides)

    @property
    def num_chips(self) -> int:
        """Chips, each of which is one JAX device."""
        return math.prod(self.sides)

    @property
    def chips_per_host(self) -> int:
        """Of a host's VM."""
        return min(4, self.num_chips)

    @property
    def num_hosts(self) -> int:
        """VMs, each of which runs one process."""
        return self.num_chips // self.chips_per_host

    @property
    def accelerator_type(self) -> str:
        """Google's name of it, `v5p-128`."""
        return f"{self.chip.accelerator}-{self.num_chips * self.chip.cores}"

    @property
    def runtime(self) -> str:
        """The software version of its VMs."""
        return self.chip.runtime


def find(name: str) -> Topology:
    """The slice called `name`.

    Raises:
      ValueError: if there is none, with the nearest: of the same chip, in number of chips.
    """
    kind, _, shape = name.partition(":")
    if kind in CHIPS and shape in CHIPS[kind].shapes:
        return Topology(chip=CHIPS[kind], shape=shape)
    # The nearest chip by its letters, then its slice nearest in size (v5e-64, v5p:64, v5p:4x4).
    letters = re.split("[:-]", name)[0].replace("v5litepod", "v5e")
    (match,) = difflib.get_close_matches(letters, CHIPS, n=1, cutoff=0.0)
    slices = [Topology(chip=CHIPS[match], shape=known) for known in CHIPS[match].shapes]
    wanted = math.prod(map(int, re.findall(r"\d+", shape or name.partition("-")[2])))
    nearest = min(slices, key=lambda one: abs(math.log(one.num_chips / max(1, wanted))))
    raise ValueError(
        f"unknown topology {name!r}; nearest: {nearest.name} ({nearest.num_chips} chips, "
        f"Google's {nearest.accelerator_type})"
    )


def main() -> int:
    """`python -m tpu.topology NAME FIELD...`; exit status 2 after one line if there is none."""
    fields = ("accelerator_type", "runtime", "num_chips", "num_hosts", "chips_per_host")
    parser = Parser(prog="python -m tpu.topology", description=__doc__)
    parser.add_argument("name", help="v5e:8x8, v5p:4x4x4 ...")
    parser.add_argument("fields", nargs="*", choices=[*fields, []], metavar="FIELD")
    arguments = parser.parse_args()
    try:
        topology = find(arguments.name)
    except ValueError as error:
        parser.error(str(error))
    for field in arguments.fields or fields:
        print(getattr(topology, field))
    return 0


if __name__ == "__main__":
    sys.exit(main())
