"""TPU slices by name: `v5p:4x4x4` is 64 chips of v5p in a cube.

`python -m tpu.topology NAME FIELD...` prints fields of a slice, one a line, for the shell scripts;
this file imports nothing but the standard library, so that a laptop without JAX can run it.

Chips are counted, not cores: Google's accelerator type `v5p-128` is `v5p:4x4x4`, 64 chips.
"""

import argparse
import dataclasses
import difflib
import math
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple


class Chip(NamedTuple):
    """A generation of TPU, from docs.cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e}.

    Attributes:
      name: as in the name of a slice.
      device_kind: what JAX calls it; the key of `experiment.metrics.PEAK_FLOPS`.
      accelerator: Google's accelerator type without its number.
      runtime: the software version for JAX, from cloud.google.com/tpu/docs/runtimes.
      gke_accelerator: GKE's node label cloud.google.com/gke-tpu-accelerator.
      memory: bytes of HBM.
      memory_bandwidth: bytes/s of HBM.
      link_bandwidth: bytes/s of one link to a neighbour, in each direction: the sheet's
        bidirectional figure of a chip, halved, over its links.
      cores: per chip, which Google's accelerator types of this chip count.
      shapes: the slices that can be had, one for each number of chips.
    """

    name: str
    device_kind: str
    accelerator: str
    runtime: str
    gke_accelerator: str
    memory: int
    memory_bandwidth: float
    link_bandwidth: float
    cores: int
    shapes: tuple[str, ...]

    @property
    def links(self) -> int:
        """Two for each dimension of the torus."""
        return 2 * len(self.shapes[0].split("x"))


_FLAT = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_SOLID = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16"
_SHAPES = {"v4": _SOLID, "v5e": _FLAT, "v5p": _SOLID + " 16x16x16 16x16x24", "v6e": _FLAT}

# HBM in GiB, its bandwidth and that of a link in GB/s. The sheets say 300 GB/s in each direction
# over six links of a v4; both ways 400 over the four of a v5e, 1200 over the six of a v5p, 800 over
# the four of a v6e. Columns are two spaces apart.
_SHEET = """
v4   TPU v4       v4         tpu-ubuntu2204-base  tpu-v4-podslice       32  1228  50   2
v5e  TPU v5 lite  v5litepod  v2-alpha-tpuv5-lite  tpu-v5-lite-podslice  16  819   50   1
v5p  TPU v5       v5p        v2-alpha-tpuv5       tpu-v5p-slice         95  2765  100  2
v6e  TPU v6 lite  v6e        v2-alpha-tpuv6e      tpu-v6e-slice         32  1600  100  1
"""


def _read_sheet() -> Iterator[Chip]:
    for line in _SHEET.strip().splitlines():
        name, kind, accelerator, runtime, label, *numbers = re.split("  +", line)
        memory, memory_rate, link_rate, cores = map(int, numbers)
        yield Chip(
            name=name,
            device_kind=kind,
            accelerator=accelerator,
            runtime=runtime,
            gke_accelerator=label,
            memory=memory * 2**30,
            memory_bandwidth=memory_rate * 1e9,
            link_bandwidth=link_rate * 1e9,
            cores=cores,
            shapes=tuple(_SHAPES[name].split()),
        )


CHIPS = {chip.name: chip for chip in _read_sheet()}


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
    def num_chips(self) -> int:
        """Chips, each of which is one JAX device."""
        return math.prod(map(int, self.shape.split("x")))

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
    parser = argparse.ArgumentParser(prog="python -m tpu.topology", description=__doc__)
    parser.add_argument("name", help="v5e:8x8, v5p:4x4x4 ...")
    parser.add_argument("fields", nargs="*", choices=[*fields, []], metavar="FIELD")
    arguments = parser.parse_args()
    try:
        topology = find(arguments.name)
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")
    for field in arguments.fields or fields:
        print(getattr(topology, field))
    return 0


if __name__ == "__main__":
    sys.exit(main())
