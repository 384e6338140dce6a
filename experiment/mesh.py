"""Devices to mesh, host batch to global arrays."""

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from experiment.config import ExperimentConfig
from model.axes import MESH_AXES
from model.sharding import batch_sharding


def mesh_sizes(config: ExperimentConfig, num_members: int, num_devices: int) -> dict[str, int]:
    """Devices along each axis of the mesh, -1 replaced.

    Raises:
      ValueError: if the axes do not multiply to the number of devices, or do not divide the
        heads, widths, rows and tokens they split; with the nearest size that works.
    """
    sizes = {axis: getattr(config.mesh, axis) for axis in MESH_AXES}
    sizes = _filled(sizes, num_devices)
    model, data = config.model, config.data
    rows = data.batch_size // config.train.accumulate
    # What is cut, by which axes, into how many parts by each device.
    for axes, name, value, parts in (
        (("sweep",), "members of the sweep", num_members, 1),
        (("tensor",), "model.num_kv_heads", model.num_kv_heads, 1),
        (("tensor",), "model.mlp_dim", model.mlp_dim, 1),
        (("tensor",), "model.vocab_size", model.vocab_size, 1),
        (("fsdp",), "model.embed_dim", model.embed_dim, 1),
        (("data", "fsdp"), "rows of a microbatch", rows, 1),
        # Two stretches each, so that all have the same causal work (`model.kernels.ring`).
        (("sequence",), "data.context_length", data.context_length, 2),
    ):
        size = math.prod(sizes[axis] for axis in axes)
        works = [n for n in range(1, size + 1) if n == 1 or value % (n * parts) == 0]
        if size not in works:
            cut = " x ".join(f"mesh.{axis}" for axis in axes)
            twice = " twice" if parts == 2 else ""
            raise ValueError(
                f"{cut}={size} does not divide {name}={value}{twice}; use {works[-1]}, "
                f"or change {name}"
            )
    return sizes


def _filled(sizes: dict[str, int], num_devices: int) -> dict[str, int]:
    """`sizes` with the rest of the devices in place of -1."""

    def filled(sizes: dict[str, int]) -> dict[str, int] | None:
        fixed = math.prod(size for size in sizes.values() if size != -1)
        if num_devices % fixed or (-1 not in sizes.values() and fixed != num_devices):
            return None
        return {axis: num_devices // fixed if n == -1 else n for axis, n in sizes.items()}

    if (result := filled(sizes)) is not None:
        return result
    # The nearest choice that changes one axis, the largest one first.
    for axis in sorted(sizes, key=lambda axis: -sizes[axis]):
        near = sorted(range(1, num_devices + 1), key=lambda n: abs(n - sizes[axis]))
        for n in near:
            if filled({**sizes, axis: n}) is not None:
                raise ValueError(
                    f"mesh {sizes} does not cover the {num_devices} devices; use mesh.{axis}={n}, "
                    "or leave one axis at -1 to take the rest"
                )
    raise ValueError(
        f"mesh {sizes} does not cover the {num_devices} devices; leave out all axes but one, at -1"
    )


def make_mesh(config: ExperimentConfig, num_members: int) -> Mesh:
    """Lays all devices out along the mesh's axes.

    Raises:
      ValueError: as `mesh_sizes`.
    """
    sizes = mesh_sizes(config, num_members, jax.device_count())
    return jax.make_mesh(
        tuple(sizes.values()), MESH_AXES, axis_types=(jax.sharding.AxisType.Auto,) * len(MESH_AXES)
    )


def host_rows(mesh: Mesh) -> tuple[int, int]:
    """Which share of a batch's rows this host reads, and how many shares there are.

    Hosts that `sequence`, `tensor` or `sweep` alone tell apart read the same rows.

    Raises:
      ValueError: if this host's devices hold rows that do not follow one another.
    """
    here = np.vectorize(lambda device: device.process_index)(mesh.devices) == jax.process_index()
    row_axes = [MESH_AXES.index(axis) for axis in ("data", "fsdp")]
    here = here.any(axis=tuple(i for i in range(here.ndim) if i not in row_axes)).reshape(-1)
    (own,) = np.nonzero(here)
    first, num_own = int(own[0]), len(own)
    if own[-1] - first + 1 != num_own or first % num_own or len(here) % num_own:
        raise ValueError(
            f"mesh {dict(mesh.shape)} gives this host rows that do not follow one another; use "
            "mesh.sweep=1, or a number of members that the hosts divide"
        )
    return first // num_own, len(here) // num_own


def to_global(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """This host's rows (`host_rows`) as part of arrays over the whole mesh."""
    sharding, (share, num_shares) = batch_sharding(mesh), host_rows(mesh)

    def make(rows_BT: np.ndarray) -> jax.Array:
        B, T = rows_BT.shape

        def part(index: Any) -> np.ndarray:
            first, end, _ = index[0].indices(B * num_shares)
            return rows_BT[first - share * B : end - share * B, index[1]]

        return jax.make_array_from_callback((B * num_shares, T), sharding, part)

    return {name: make(value) for name, value in batch.items()}
