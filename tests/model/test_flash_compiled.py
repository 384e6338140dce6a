"""The GPU's attention kernel in programs that XLA compiles for absent GPUs (`make test-gpu`)."""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ropewalk.model.kernels import flash
from ropewalk.tpu.topology import find

HAS_CUDA = importlib.util.find_spec("jax_cuda13_plugin") is not None
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.long,
    pytest.mark.skipif(not HAS_CUDA, reason="needs jax[cuda13]: make test-gpu"),
]


def compile_gradient(name: str, T: int, H: int, U: int, dtype: str, attend=flash.attention) -> Any:
    """Memory of output and gradients: documents, a traced window, two query heads, one key head."""
    # Under a mesh, as in tpu.aot: JAX 0.11 lowers a kernel for the GPU of the mesh in use.
    mesh = jax.sharding.Mesh(find(name).compile_devices(), ("gpu",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def struct(*shape, dtype=dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def total(q, k, v, ids, window):
        return jnp.sum(attend(q, k, v, ids, window)[0].astype(jnp.float32) ** 2)

    arrays = (struct(1, T, 2, H), struct(1, T, 1, H), struct(1, T, 1, U))
    numbers = (struct(1, T, dtype="int32"), struct(dtype="int32"))
    gradient = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
    with jax.set_mesh(mesh):
        return gradient.lower(*arrays, *numbers).compile().memory_analysis()


@pytest.mark.parametrize("name", ["l4", "a100", "h100", "b200"])
@pytest.mark.parametrize(
    "H, U, dtype",
    [
        (24, 8, "float16"),
        (64, 64, "float32"),
        (128, 128, "bfloat16"),
        (128, 128, "float32"),
        (192, 128, "bfloat16"),
        (256, 256, "bfloat16"),
        (256, 256, "float32"),
    ],
)
def test_every_head_fits_the_shared_memory(name, H, U, dtype):
    """XLA refuses a kernel that needs more than a block may use: 99 KiB on an L4."""
    compile_gradient(name, 1000, H, U, dtype)
