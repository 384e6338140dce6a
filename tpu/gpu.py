"""NVIDIA GPUs by name: `h100:8` is a machine of 8, `h100:8x4` are four. `gpus.toml` has the chips.

XLA compiles for an absent GPU from a description of the chip, with the wheels of `jax[cuda13]`,
which `make test-gpu` installs. On a device, XLA also times variants of matrix products and fusions
(autotuning). Here it uses defaults, so that launches and temporaries may differ.
"""

import dataclasses
import os
import re
import string
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ropewalk.tpu.hlo import Collective

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
      link: what connects the GPUs of a host, "NVLink" or "PCIe".
      link_bandwidth: bytes/s that a GPU receives over it.
      network_bandwidth: bytes/s that a GPU receives from other hosts.
      host_bandwidth: bytes/s between a GPU and its host's memory.
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
    link: str
    link_bandwidth: float
    network_bandwidth: float
    host_bandwidth: float


_SHEET = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))
GPUS = {name: Gpu(name=name, **row) for name, row in _SHEET.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machines:
    """Hosts with GPUs of one kind; the attributes are those of `tpu.topology.Topology`."""

    chip: Gpu
    chips_per_host: int
    num_hosts: int = 1

    @property
    def name(self) -> str:
        """Name of the machines: `h100:8x4`."""
        hosts = f"x{self.num_hosts}" if self.num_hosts > 1 else ""
        return f"{self.chip.name}:{self.chips_per_host}{hosts}"

    @property
    def usable_memory(self) -> int:
        """Bytes of a GPU's memory that a program may use."""
        return int(MEMORY_FRACTION * self.chip.memory)

    @property
    def num_chips(self) -> int:
        """Number of GPUs; each is one JAX device."""
        return self.chips_per_host * self.num_hosts

    def transfer_seconds(self, collective: "Collective") -> float:
        """Return the least time of a collective: the slower of both networks."""
        within = (collective.wire_bytes - collective.network_bytes) / self.chip.link_bandwidth
        if not collective.network_bytes:
            return within
        return max(within, collective.network_bytes / self.chip.network_bandwidth)

    def describe_links(self, collectives: "Sequence[Collective]") -> str:
        """Return what connects the GPUs; `collectives` are part of a slice's description only."""
        within = f"over {self.chip.link} at {self.chip.link_bandwidth / 1e9:.0f} GB/s"
        between = f", between hosts at {self.chip.network_bandwidth / 1e9:.0f} GB/s"
        return within + between * (self.num_hosts > 1)

    def compile_devices(self) -> list[Any]:
        """Return the GPUs as devices for compilation only.

        Raises:
          ValueError: if the wheels of CUDA are not installed.
        """
        # The plug-in must neither ask for a driver nor look for GPUs.
        os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
        import jax
        from jax.experimental import topologies

        jax.config.update("jax_platforms", "cpu")
        shape = f"1x{self.num_hosts}x{self.chips_per_host}"
        try:
            return topologies.get_topology_desc(
                self.name,
                platform="cuda",
                target_config=target_config(self.chip),
                topology=shape,
            ).devices
        except (ImportError, OSError, RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"XLA for NVIDIA GPUs cannot be loaded ({str(error).splitlines()[0]}); "
                "`make test-gpu` installs it into .venv-cuda: run .venv-cuda/bin/python -m tpu.aot"
            ) from error


def find(name: str) -> Machines:
    """Return the machines called `name`, an entry of `GPUS` such as "h100:8x4"; "t4" is one GPU.

    Raises:
      ValueError: for a number of GPUs that no host has.
    """
    kind, _, shape = name.partition(":")
    sizes = re.fullmatch(r"([1-8])(?:x([1-9]\d*))?", shape or "1")
    if not sizes:
        raise ValueError(
            f"unknown topology {name!r}: a host has 1 to 8 GPUs; {kind}:8x2 are two hosts of 8"
        )
    machines = Machines(chip=GPUS[kind], chips_per_host=int(sizes[1]), num_hosts=int(sizes[2] or 1))
    if machines.num_hosts > 1 and not machines.chip.network_bandwidth:
        raise ValueError(
            f"topology {name!r}: {kind} is known on one host only; use {kind}:{sizes[1]}"
        )
    return machines


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
    text = Path(__file__).with_name("gpu.txtpb").read_text(encoding="utf-8")
    return string.Template(text).substitute(values)
