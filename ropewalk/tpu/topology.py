"""TPU slices and machines with NVIDIA GPUs by name; `chips.toml` and `gpus.toml` have the chips.

`v5p:4x4x4` is 64 chips of v5p in a cube, `h100:8` a machine of 8 GPUs, and `h100:8x4` are four.

`python -m ropewalk.tpu.topology NAME FIELD...` prints fields of a slice for the shell scripts, one
per line. It needs no JAX, so that it runs on a laptop with Python only.

Sizes of slices count chips. Google's accelerator types, which are accepted too, count cores:
`v5p-128` is `v5p:4x4x4`, 64 chips. GKE's names of v5e have its prefix instead of `v5litepod`:
`v5e-64`.
"""

import contextlib
import dataclasses
import fnmatch
import math
import os
import re
import string
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.utils.command_line import Parser
from ropewalk.utils.messages import nearest


class Chip(NamedTuple):
    """A generation of TPU: an entry of `chips.toml`.

    Attributes:
      name: prefix of the names of its slices.
      device_kind: JAX's name of it; the key of `experiment.cost.PEAK_FLOPS`.
      accelerator: Google's accelerator type without its number.
      runtime: the software version for JAX.
      gke_accelerator: GKE's node label cloud.google.com/gke-tpu-accelerator.
      memory_gib: GiB of HBM of a device that libtpu offers to programs.
      cores: per chip, as counted by Google's accelerator types.
      shapes: shapes of the available slices, one per number of chips.
      devices: JAX devices per chip.
    """

    name: str
    device_kind: str
    accelerator: str
    runtime: str
    gke_accelerator: str
    memory_gib: float
    cores: int
    shapes: list[str]
    devices: int = 1

    @property
    def usable_memory(self) -> int:
        """Bytes of HBM that a program may use."""
        return int(self.memory_gib * 2**30)


# Share of a GPU's memory for JAX (XLA_PYTHON_CLIENT_MEM_FRACTION; 0.75 by default). The rest is for
# CUDA, NCCL and cuDNN.
MEMORY_FRACTION = 0.92


class Gpu(NamedTuple):
    """A GPU: an entry of `gpus.toml`.

    Attributes:
      name: prefix of the names of its machines.
      device_kind: JAX's name of it.
      compute_capability: major and minor.
      cores: streaming multiprocessors.
      shared_memory: bytes of a core, and the most that a block may use of them.
      threads_per_core: the most that are resident.
      l2_cache, memory: bytes.
      clock_ghz: the highest clock.
      memory_bandwidth: bytes/s.
    """

    name: str
    device_kind: str
    compute_capability: list[int]
    cores: int
    shared_memory: list[int]
    threads_per_core: int
    l2_cache: int
    clock_ghz: float
    memory: int
    memory_bandwidth: float

    @property
    def usable_memory(self) -> int:
        """Bytes of memory that a program may use."""
        return int(MEMORY_FRACTION * self.memory)


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


CHIPS = {name: Chip(name=name, **row) for name, row in tomllib.loads(_read("chips.toml")).items()}
GPUS = {name: Gpu(name=name, **row) for name, row in tomllib.loads(_read("gpus.toml")).items()}


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
    def sides(self) -> tuple[int, ...]:
        """Chips along each dimension."""
        return tuple(map(int, self.shape.split("x")))

    @property
    def rings(self) -> tuple[bool, ...]:
        """True for each dimension that closes to a ring.

        On v5e and v6e these are dimensions of 16 chips. On v4 and v5p optical switches join the
        faces of a slice of 4x4x4 cubes: docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm.
        """
        if len(self.sides) == 2:
            return tuple(side == 16 for side in self.sides)
        return (all(side % 4 == 0 for side in self.sides),) * len(self.sides)

    @property
    def num_chips(self) -> int:
        """Number of chips."""
        return math.prod(self.sides)

    @property
    def num_devices(self) -> int:
        """Number of JAX devices."""
        return self.num_chips * self.chip.devices

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

    def compile_devices(self) -> list[Any]:
        """Return the chips as devices for compilation only.

        Raises:
          ValueError: if libtpu is not installed, or not the one that this JAX needs.
        """
        _check_libtpu()
        # Without `wrap` libtpu assumes that there are no rings, and does not gather.
        options: dict[str, Any] = {"wrap": (*self.rings, False)[:3]}
        if self.chip.name == "v4":
            options["chip_config_name"] = "megacore"  # a chip's two cores are one device, as on v5p
        if self.num_chips == 1:
            options["chips_per_host_bounds"] = (1, 1, 1)
        environment = {
            # libtpu must not look for a TPU, nor query the cloud's metadata server for one.
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": self.accelerator_type,
            "TPU_WORKER_HOSTNAMES": "localhost",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }
        advice = "pip install '.[tpu]' in the folder of ropewalk, in an environment of its own"
        return _compile_devices(self.name, "tpu", "libtpu", advice, environment, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machines:
    """Hosts with GPUs of one kind; the attributes are those of `Topology`.

    XLA compiles for an absent GPU from a description of the chip, with the wheels of `jax[cuda13]`,
    which `make test-gpu` installs. On a device, XLA also times variants of matrix products and
    fusions (autotuning). Here it uses defaults, so that launches and temporaries may differ.
    """

    chip: Gpu
    chips_per_host: int
    num_hosts: int = 1

    @property
    def name(self) -> str:
        """Name of the machines: `h100:8x4`."""
        hosts = f"x{self.num_hosts}" if self.num_hosts > 1 else ""
        return f"{self.chip.name}:{self.chips_per_host}{hosts}"

    @property
    def num_chips(self) -> int:
        """Number of GPUs; each is one JAX device."""
        return self.chips_per_host * self.num_hosts

    def compile_devices(self) -> list[Any]:
        """Return the GPUs as devices for compilation only.

        Raises:
          ValueError: if the wheels of CUDA are not installed.
        """
        return _compile_devices(
            self.name,
            "cuda",
            "XLA for NVIDIA GPUs",
            "`make test-gpu` installs it into .venv-cuda: run .venv-cuda/bin/ropewalk aot",
            # The plug-in must neither ask for a driver nor look for GPUs.
            {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "CUDA_VISIBLE_DEVICES": "-1"},
            target_config=target_config(self.chip),
            topology=f"1x{self.num_hosts}x{self.chips_per_host}",
        )


def _compile_devices(
    name: str, platform: str, compiler: str, advice: str, environment: Mapping[str, str], **options
) -> list[Any]:
    """Return devices for compilation only; `environment` is set where it has no value."""
    for variable, value in environment.items():
        os.environ.setdefault(variable, value)
    import jax
    from jax.experimental import topologies

    jax.config.update("jax_platforms", "cpu")
    try:
        return topologies.get_topology_desc(name, platform=platform, **options).devices
    except (ImportError, OSError, RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{compiler} cannot be loaded ({reason}); {advice}") from error


def target_config(gpu: Gpu) -> str:
    """Return XLA's description of a GPU, a `GpuTargetConfigProto` as text."""
    major, minor = gpu.compute_capability
    per_core, per_block = gpu.shared_memory
    extension = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
    values = gpu._asdict() | {
        "capability": f"major: {major} minor: {minor} feature_extension: {extension}",
        "fpus_per_core": 64 if (major, minor) in ((7, 5), (8, 0)) else 128,
        "per_core": per_core,
        "per_block": per_block,
        "bandwidth": round(gpu.memory_bandwidth),
    }
    return string.Template(_read("gpu.txtpb")).substitute(values)


def find(name: str) -> Topology | Machines:
    """Return the TPU slice or the machines with GPUs called `name`; "t4" is one GPU.

    Raises:
      ValueError: if there are none; the message names the nearest.
    """
    kind, _, shape = name.partition(":")
    known = [*CHIPS, "v5litepod", *GPUS]
    if re.split("[:-]", name)[0] not in known:
        raise ValueError(f"unknown topology {name!r}; {nearest(kind, known)}")
    if kind not in GPUS:
        return find_slice(name)
    sizes = re.fullmatch(r"([1-8])(?:x([1-9]\d*))?", shape or "1")
    if not sizes:
        raise ValueError(
            f"unknown topology {name!r}; use {kind}:1 to {kind}:8, or {kind}:8x2 for two hosts of 8"
        )
    return Machines(chip=GPUS[kind], chips_per_host=int(sizes[1]), num_hosts=int(sizes[2] or 1))


def find_slice(name: str) -> Topology:
    """Return the TPU slice called `name`.

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
    parser = Parser(description=__doc__)
    parser.add_argument("name", help="v5e:8x8, v5p:4x4x4 ...")
    parser.add_argument("fields", nargs="*", choices=[*fields, []], metavar="FIELD")
    arguments = parser.parse_args()
    with parser.refusing(ValueError):
        topology = find_slice(arguments.name)
    for field in arguments.fields or fields:
        print(getattr(topology, field))
    return 0


if __name__ == "__main__":
    sys.exit(main())
