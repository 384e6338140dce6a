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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """A generation of TPU, from docs.cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e}.

    Attributes:
      name: as in the name of a slice.
      device_kind: what JAX calls it; the key of `experiment.metrics.PEAK_FLOPS`.
      memory: bytes of HBM.
      memory_bandwidth: bytes/s of HBM.
      link_bandwidth: bytes/s of one link to a neighbour, in each direction: the sheet's
        bidirectional figure of a chip, halved, over its links.
      links: two for each dimension of the torus.
      shapes: the slices that can be had, one for each number of chips.
      cores: per chip, which Google's accelerator types of this chip count.
      accelerator: the accelerator type without its number.
      runtime: the software version for JAX, from cloud.google.com/tpu/docs/runtimes.
      gke_accelerator: GKE's node label cloud.google.com/gke-tpu-accelerator.
    """

    name: str
    device_kind: str
    memory: int
    memory_bandwidth: float
    link_bandwidth: float
    links: int
    shapes: tuple[str, ...]
    cores: int
    accelerator: str
    runtime: str
    gke_accelerator: str


_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_SOLID = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16")
_SOLID += ("8x16x16",)
_GIB = 2**30

CHIPS = {
    chip.name: chip
    for chip in (
        Chip(
            name="v4",
            device_kind="TPU v4",
            memory=32 * _GIB,
            memory_bandwidth=1228e9,
            link_bandwidth=50e9,  # 300 GB/s in each direction over six links
            links=6,
            shapes=_SOLID,
            cores=2,
            accelerator="v4",
            runtime="tpu-ubuntu2204-base",
            gke_accelerator="tpu-v4-podslice",
        ),
        Chip(
            name="v5e",
            device_kind="TPU v5 lite",
            memory=16 * _GIB,
            memory_bandwidth=819e9,
            link_bandwidth=50e9,  # 400 GB/s both ways over four links
            links=4,
            shapes=_FLAT,
            cores=1,
            accelerator="v5litepod",
            runtime="v2-alpha-tpuv5-lite",
            gke_accelerator="tpu-v5-lite-podslice",
        ),
        Chip(
            name="v5p",
            device_kind="TPU v5",
            memory=95 * _GIB,
            memory_bandwidth=2765e9,
            link_bandwidth=100e9,  # 1200 GB/s both ways over six links
            links=6,
            shapes=(*_SOLID, "16x16x16", "16x16x24"),
            cores=2,
            accelerator="v5p",
            runtime="v2-alpha-tpuv5",
            gke_accelerator="tpu-v5p-slice",
        ),
        Chip(
            name="v6e",
            device_kind="TPU v6 lite",
            memory=32 * _GIB,
            memory_bandwidth=1600e9,
            link_bandwidth=100e9,  # 800 GB/s both ways over four links
            links=4,
            shapes=_FLAT,
            cores=1,
            accelerator="v6e",
            runtime="v2-alpha-tpuv6e",
            gke_accelerator="tpu-v6e-slice",
        ),
    )
}


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
    numbers = re.findall(r"\d+", shape or name.partition("-")[2])
    letters = re.split("[:-]", name)[0].replace("v5litepod", "v5e")
    matches = difflib.get_close_matches(letters, CHIPS, n=1, cutoff=0.0)
    chip = CHIPS[matches[0]] if matches else CHIPS["v5e"]
    slices = [Topology(chip=chip, shape=known) for known in chip.shapes]
    wanted = math.prod(map(int, numbers)) if numbers else 1
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
