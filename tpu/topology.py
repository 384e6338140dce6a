"""TPU slices by name: `v5p:4x4x4` is 64 chips of v5p in a cube. `chips.toml` has the chips.

`python -m tpu.topology NAME FIELD...` prints fields of a slice for the shell scripts, one per line.
It needs no JAX, so that it runs on a laptop with Python only.

Sizes count chips. Google's accelerator types, which are accepted too, count cores: `v5p-128` is
`v5p:4x4x4`, 64 chips. GKE's names of v5e have its prefix instead of `v5litepod`: `v5e-64`.
"""

import contextlib
import dataclasses
import fnmatch
import math
import os
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.utils.command_line import Parser
from ropewalk.utils.messages import nearest

if TYPE_CHECKING:
    from ropewalk.tpu.hlo import Collective


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

    def links_used(self, group: int) -> int:
        """Return the links of a chip to its group, which fills the longest sides first.

        A dimension adds two links if it closes to a ring and the group spans all of it. Otherwise
        it adds one, because the chips at the ends of the group have no second.
        """
        links, size = 0, 1
        for side, ring in sorted(zip(self.sides, self.rings, strict=True), reverse=True):
            if size < group and side > 1:
                links += 2 if ring and size * side <= group else 1
                size *= side
        return max(1, links)

    def transfer_seconds(self, collective: "Collective") -> float:
        """Return the least time of a collective's executions in a step."""
        links = self.links_used(collective.group)
        return collective.wire_bytes / (links * self.chip.link_bandwidth)

    def describe_links(self, collectives: "Sequence[Collective]") -> str:
        """Return the bandwidth of a link, and the number that each group uses."""
        groups = sorted({collective.group for collective in collectives})
        used = ", ".join(f"{group} chips: {self.links_used(group)}" for group in groups)
        of_links = f" of {self.chip.links} links ({used})" if used else ""
        return f"at {self.chip.link_bandwidth / 1e9:.0f} GB/s per link{of_links}"

    def compile_devices(self) -> list[Any]:
        """Return the chips as devices for compilation only.

        Raises:
          ValueError: if libtpu is not installed, or not the one that this JAX needs.
        """
        _check_libtpu()
        # libtpu must not look for a TPU, nor query the cloud's metadata server for one.
        for name, value in {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": self.accelerator_type,
            "TPU_WORKER_HOSTNAMES": "localhost",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }.items():
            os.environ.setdefault(name, value)
        import jax
        from jax.experimental import topologies

        jax.config.update("jax_platforms", "cpu")
        # Without `wrap` libtpu assumes that there are no rings, and does not gather.
        options: dict[str, Any] = {"wrap": (*self.rings, False)[:3]}
        if self.chip.name == "v4":
            options["chip_config_name"] = "megacore"  # a chip's two cores are one device, as on v5p
        if self.num_chips == 1:
            options["chips_per_host_bounds"] = (1, 1, 1)
        try:
            return topologies.get_topology_desc(self.name, platform="tpu", **options).devices
        except (ImportError, OSError, RuntimeError) as error:
            raise ValueError(
                f"libtpu cannot be loaded ({str(error).splitlines()[0]}); "
                "pip install '.[tpu]' in the folder of ropewalk, in an environment of its own"
            ) from error


def find(name: str) -> Topology:
    """Return the slice called `name`.

    Raises:
      ValueError: if there is none; the message names the nearest slice.
    """
    slices = [Topology(chip=chip, shape=shape) for chip in CHIPS.values() for shape in chip.shapes]
    known = {s.accelerator_type.replace("v5litepod", "v5e"): s for s in slices}  # GKE's names
    known |= {s.accelerator_type: s for s in slices} | {s.name: s for s in slices}
    if name in known:
        return known[name]
    raise ValueError(f"unknown topology {name!r}; {nearest(name, known)}")


def _check_libtpu() -> None:
    """Raise ValueError if libtpu is not the one that this JAX needs: it would crash later."""
    with contextlib.suppress(PackageNotFoundError):
        present = version("libtpu")
        needs = next(line for line in requires("jax") or () if line.startswith("libtpu"))
        pattern = needs.partition(";")[0].partition("==")[2].strip()
        if not fnmatch.fnmatch(present, pattern):
            raise ValueError(
                f"JAX {version('jax')} needs libtpu {pattern}, and {present} is installed; "
                "`make test-tpu` installs the matching one into .venv-libtpu"
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
