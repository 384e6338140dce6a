"""The mesh of devices, and arrays over it from the data of each host."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from ropewalk.experiment.config import ExperimentConfig, MeshConfig
from ropewalk.model.axes import MESH_AXES
from ropewalk.model.sharding import batch_sharding
from ropewalk.utils.messages import counted

# FLOPs that a device performs while it receives one byte from another: 1,000 to 4,000 on the chips
# of experiment/chips.toml, at half of their peaks. `_spread_members` weighs both.
_FLOPS_PER_BYTE = 2000


def mesh_sizes(
    config: ExperimentConfig, num_members: int, num_devices: int, num_hosts: int = 1
) -> dict[str, int]:
    """Return the number of devices along each axis of the mesh, with -1 replaced.

    The default mesh (`MeshConfig()`) of a sweep spreads members over devices first. It may leave
    devices of a single host unused, so that the sizes may multiply to less than `num_devices`.

    Raises:
      ValueError: if the axes do not multiply to the number of devices, or do not divide the
        heads, widths, rows and tokens they split; with the nearest size that works.
    """
    if config.mesh == MeshConfig() and num_members > 1:
        config = _spread_members(config, num_members, num_devices, num_hosts)
        num_devices = config.mesh.sweep * config.mesh.data
    sizes = _fill({axis: getattr(config.mesh, axis) for axis in MESH_AXES}, num_devices)
    model, data = config.model, config.data
    rows = data.batch_size // config.train.accumulate
    # Axes, the name and size that they split, and parts per device.
    for axes, name, value, parts in (
        (("sweep",), "members of the sweep", num_members, 1),
        (("tensor",), "model.num_kv_heads", model.kv_heads, 1),
        (("tensor",), "model.mlp_dim", model.mlp_dim, 1),
        (("tensor",), "model.vocab_size", model.vocab_size, 1),
        (("fsdp",), "model.embed_dim", model.embed_dim, 1),
        (("data", "fsdp"), "data.batch_size / train.accumulate", rows, 1),
        # Two parts each, so that all have the same causal work (`model.kernels.ring`).
        (("sequence",), "data.context_length", data.context_length, 2),
    ):
        size = math.prod(sizes[axis] for axis in axes)
        divisors = [n for n in range(1, size + 1) if size % n == 0]  # the rest is another axis
        works = [n for n in divisors if n == 1 or value % (n * parts) == 0]
        if size not in works:
            cut = " x ".join(f"mesh.{axis}" for axis in axes)
            twice = " twice" if parts == 2 else ""
            raise ValueError(
                f"{cut}={size} does not divide {name}={value}{twice}; use {works[-1]}, "
                f"or change {name}"
            )
    return sizes


def check_stages(
    configs: Sequence[ExperimentConfig], sizes: dict[str, int], num_members: int
) -> None:
    """Check that the mesh of a run's first stage, which has `sizes`, suits all its stages.

    Raises:
      ValueError: as `mesh_sizes`.
    """
    num_devices = math.prod(sizes.values())
    for config in configs:
        config = dataclasses.replace(config, mesh=MeshConfig(**sizes))
        mesh_sizes(config, num_members, num_devices)


def _fill(sizes: dict[str, int], num_devices: int) -> dict[str, int]:
    """Return `sizes` with the rest of the devices in place of -1."""
    fixed = math.prod(size for size in sizes.values() if size != -1)
    rest = num_devices // fixed
    if rest * fixed != num_devices or (rest > 1 and -1 not in sizes.values()):
        raise ValueError(
            f"mesh {sizes} does not cover {counted(num_devices, 'devices')}; use sizes whose "
            f"product is {num_devices}, or leave one axis at -1 to take the rest"
        )
    return {axis: rest if size == -1 else size for axis, size in sizes.items()}


def _spread_members(
    config: ExperimentConfig, num_members: int, num_devices: int, num_hosts: int
) -> ExperimentConfig:
    """Return the config with the mesh that spreads a sweep's members over devices best.

    Members do not communicate. If all devices get as many members each, rows are not split.
    Otherwise groups of devices share the rows of their members and add up the gradients, or, on
    one host, devices stay unused. The fastest by an estimate of compute and traffic is chosen.
    """
    rows = config.data.batch_size // config.train.accumulate
    tokens = config.data.batch_size * config.data.context_length

    def seconds(mesh: MeshConfig) -> float:
        # Per parameter of a member: 6 FLOPs for each token; a float32 gradient that an all-reduce
        # receives twice, without the device's share.
        received = 8 * (mesh.data - 1) / mesh.data
        once = 6 * tokens / mesh.data + _FLOPS_PER_BYTE * received
        return num_members / mesh.sweep * once

    divisors = [n for n in range(1, num_devices + 1) if num_members % n == 0]
    meshes = [MeshConfig(sweep=n, data=num_devices // n) for n in divisors if num_devices % n == 0]
    meshes = [mesh for mesh in meshes if rows % mesh.data == 0]
    if num_hosts == 1:
        meshes.append(MeshConfig(sweep=divisors[-1], data=1))
    # If no mesh works, `mesh_sizes` refuses the default.
    mesh = min(meshes or [MeshConfig(data=num_devices)], key=seconds)
    return dataclasses.replace(config, mesh=mesh)


def _cores_for(num_members: int) -> list[Any] | None:
    """Return those devices of `devices.device_per_core` that get as many members each, if any."""
    alone = jax.process_count() == 1 and jax.default_backend() == "cpu"
    if not alone or jax.config.jax_num_cpu_devices <= 1:  # pyright: ignore
        return None
    used = max(n for n in range(1, jax.device_count() + 1) if num_members % n == 0)
    return jax.devices()[:used]


def make_mesh(
    config: ExperimentConfig, num_members: int, devices: Sequence[Any] | None = None
) -> Mesh:
    """Return the mesh of some devices, by default all devices of the run.

    If the devices are the cores of one machine and `config.mesh` is the default, they are divided
    equally among members; a single run gets one core's device.

    Raises:
      ValueError: as `mesh_sizes`.
    """
    if devices is None and config.mesh == MeshConfig() and (cores := _cores_for(num_members)):
        devices = cores
        config = dataclasses.replace(config, mesh=MeshConfig(sweep=len(cores)))
    devices = jax.devices() if devices is None else devices
    num_hosts = len({device.process_index for device in devices})
    sizes = mesh_sizes(config, num_members, len(devices), num_hosts)
    devices = devices[: math.prod(sizes.values())]
    # An axis of the mesh may span a part of an axis of the torus: sequence=8 on 4x4x4.
    grid = mesh_utils.create_device_mesh(
        tuple(sizes.values()), devices, allow_split_physical_axes=True
    )
    return Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def describe_mesh(mesh: Mesh) -> str:
    """Describe the devices that share the work, such as "8 devices: sweep=2, data=4"."""
    sizes = {axis: size for axis, size in mesh.shape.items() if size > 1}
    used, present = math.prod(sizes.values()), jax.device_count()
    count = f"{used} devices" if used == present else f"{used} of {present} devices"
    return f"{count}: " + ", ".join(f"{axis}={size}" for axis, size in sizes.items())


def one_device_mesh() -> Mesh:
    """Return a mesh of this host's first device only."""
    grid = np.array(jax.local_devices()[:1]).reshape((1,) * len(MESH_AXES))
    return Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


class HostRows(NamedTuple):
    """Rows of a batch that a host reads.

    Attributes:
      rows: numbers of the rows within the batch, ascending.
      counted: whether no earlier host reads the row too. Several hosts read the same rows if
        tokens, heads or members are split between hosts.
    """

    rows: list[int]
    counted: np.ndarray


def host_rows(mesh: Mesh, batch_size: int, host: int | None = None) -> HostRows:
    """Return the rows that the devices of a host (this one by default) hold."""
    host = jax.process_index() if host is None else host
    rows_of: dict[int, set[int]] = {}
    shape = (batch_size, mesh.shape["sequence"])
    for device, index in batch_sharding(mesh).devices_indices_map(shape).items():
        rows = range(*index[0].indices(batch_size))
        rows_of.setdefault(device.process_index, set()).update(rows)
    # By number of host, so that all hosts agree without communication.
    before: set[int] = set().union(*(rows for other, rows in rows_of.items() if other < host))
    numbers = sorted(rows_of[host])
    return HostRows(numbers, np.array([row not in before for row in numbers]))


def make_global_batch(
    batch: dict[str, np.ndarray], mesh: Mesh, batch_size: int
) -> dict[str, jax.Array]:
    """Return global arrays over the mesh from this host's rows (`host_rows`) of a batch."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(
            sharding, rows_BT, (batch_size, rows_BT.shape[1])
        )
        for name, rows_BT in batch.items()
    }


def put(tree: Any, shardings: Any) -> Any:
    """Shard arrays that every host has in full over the mesh."""
    # By callback: `jax.device_put` would need the devices of other hosts.
    return jax.tree.map(
        lambda x, where: jax.make_array_from_callback(x.shape, where, lambda index: x[index]),
        tree,
        shardings,
    )
