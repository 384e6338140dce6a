"""Devices to mesh, host batch to global arrays."""

import math

import jax
import numpy as np
from jax.sharding import Mesh

from experiment.config import ExperimentConfig
from model.sharding import MESH_AXES, batch_sharding


def make_mesh(config: ExperimentConfig, num_members: int) -> Mesh:
    """Lays all devices out along the mesh's axes.

    Raises:
      ValueError: if the axes do not multiply to the number of devices, or do not divide the
        heads, widths and rows they split; with the nearest size that works.
    """
    model, data = config.model, config.data
    sizes = {axis: getattr(config.mesh, axis) for axis in MESH_AXES}
    num_devices = jax.device_count()
    fixed = math.prod(size for size in sizes.values() if size != -1)
    for axis, size in sizes.items():
        if size == -1:
            sizes[axis] = max(1, num_devices // fixed)
    if math.prod(sizes.values()) != num_devices:
        raise ValueError(
            f"mesh {sizes} covers {math.prod(sizes.values())} devices but there are {num_devices}; "
            "leave one axis at -1 to take the rest"
        )
    rows = data.batch_size // config.train.accumulate
    split = {
        "mesh.sweep": (sizes["sweep"], {"members of the sweep": num_members}),
        "mesh.tensor": (
            sizes["tensor"],
            {
                "model.num_kv_heads": model.num_kv_heads,
                "model.mlp_dim": model.mlp_dim,
                "model.vocab_size": model.vocab_size,
            },
        ),
        "mesh.fsdp": (sizes["fsdp"], {"model.embed_dim": model.embed_dim}),
        "mesh.data x mesh.fsdp": (sizes["data"] * sizes["fsdp"], {"rows of a microbatch": rows}),
    }
    for axis, (size, divided) in split.items():
        for name, value in divided.items():
            if value % size:
                nearest = max(n for n in range(1, size + 1) if value % n == 0)
                raise ValueError(
                    f"{axis}={size} does not divide {name}={value}; use {nearest}, or change {name}"
                )
    return jax.make_mesh(
        tuple(sizes.values()), MESH_AXES, axis_types=(jax.sharding.AxisType.Auto,) * len(MESH_AXES)
    )


def to_global(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """This host's rows as part of arrays over the whole mesh."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, value)
        for name, value in batch.items()
    }
