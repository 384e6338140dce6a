"""The GPU's attention kernel in programs that XLA compiles for absent GPUs (`make test-gpu`)."""

import functools
import importlib.util
import math
import re

import jax
import jax.numpy as jnp
import pytest

from ropewalk.model.kernels import flash
from ropewalk.tpu.topology import find

HAS_CUDA = importlib.util.find_spec("jax_cuda13_plugin") is not None
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not HAS_CUDA, reason="needs jax[cuda13]: make test-gpu"),
]


@functools.cache
def compile_gradient(name: str, T: int, H: int = 64, U: int = 64, dtype: str = "bfloat16"):
    """Outputs and gradients of documents and a traced window: two query heads of one key head."""
    # Under a mesh, as in tpu.aot: JAX 0.11 lowers a kernel for the GPU of the mesh in use.
    mesh = jax.sharding.Mesh(find(name).compile_devices(), ("gpu",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def struct(*shape, dtype=dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def total(q, k, v, ids, window):
        return jnp.sum(flash.attention(q, k, v, ids, window).astype(jnp.float32) ** 2)

    arrays = (struct(1, T, 2, H), struct(1, T, 1, H), struct(1, T, 1, U))
    numbers = (struct(1, T, dtype="int32"), struct(dtype="int32"))
    gradient = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
    with jax.set_mesh(mesh):
        return gradient.lower(*arrays, *numbers).compile()


def largest_array(text: str) -> int:
    """The number of entries of the largest array of a compiled program."""
    shapes = re.findall(r"\b[a-z]+\d+\[([\d,]+)\]", text)
    return max(math.prod(map(int, shape.split(","))) for shape in shapes)


def test_memory_grows_with_the_row_and_not_with_its_square():
    lengths = (4096, 32_768, 131_072)
    bytes_per_token = []
    for T in lengths:
        compiled = compile_gradient("h100", T)
        text = compiled.as_text()
        assert text.count('"__gpu$xla.gpu.triton"') == 3
        # The output of two heads is the largest; block ranges need X x Y entries of blocks.
        assert largest_array(text) <= 2 * T * 64
        bytes_per_token.append(compiled.memory_analysis().temp_size_in_bytes / T)
    assert max(bytes_per_token) < 1.1 * min(bytes_per_token)


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
