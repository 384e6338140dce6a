"""The GPU's attention kernel, run by Pallas' interpreter, against numpy in float64."""

import functools
import inspect
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.model.config import NO_WINDOW
from ropewalk.model.kernels import flash
from tests.model.float64_attention import check_kernel, check_members, differentiate, make_inputs

SMALL = flash.Blocks(16, 32, 4, 2)  # queries and keys of a block, so that short rows have several


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(flash, "INTERPRET", True)
    monkeypatch.setattr(flash, "_choose_blocks", lambda *_: (SMALL, SMALL._replace(keys=16), SMALL))


by_kernel = functools.partial(differentiate, flash.attention)


@pytest.mark.long
def test_members_with_windows_of_their_own_in_float64():
    """Packed documents, shared keys, values narrower than keys, two tiles a head, odd length."""
    check_members(flash.attention, make_inputs(T=77, N=4, K=2, H=40, U=24), [NO_WINDOW, 20, 1])


@pytest.mark.long
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 6e-3)])
@pytest.mark.parametrize(
    "N, K, H, U",
    [(2, 2, 64, 64), (4, 1, 96, 96), (2, 1, 128, 128), (2, 2, 192, 128), (2, 1, 256, 256)],
)
def test_heads_of_64_to_256_in_float64(N, K, H, U, dtype, tolerance):
    check_kernel(flash.attention, make_inputs(77, N, K, H, U), 30, tolerance, dtype)


@pytest.mark.long
def test_the_blocks_of_a_gpu_in_float64(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(flash, "INTERPRET", True)
    check_kernel(flash.attention, make_inputs(300, N=2, K=1, H=64, U=64), 200)


def test_triton_kernels_for_a_long_row_without_a_matrix_of_it(monkeypatch):
    """Lowered for CUDA, which needs no GPU, with all blocks of one; two members share launches."""
    monkeypatch.undo()
    T, members = 131_072, 2
    shapes = [
        (members, 1, T, heads, width) for heads, width in ((2, 96), (1, 96), (1, 64), (2, 64))
    ]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    ids, window = (jax.ShapeDtypeStruct((members, *x), jnp.int32) for x in ((1, T), ()))
    # JAX 0.11 lowers for the mesh's device, which had no platform before.
    names = inspect.signature(jax.sharding.AbstractDevice).parameters
    platform = {"platform": "cuda"} if "platform" in names else {}
    device = jax.sharding.AbstractDevice("NVIDIA H100", num_cores=132, **platform)
    mesh = jax.sharding.AbstractMesh((1,), ("data",), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(jax.vmap(by_kernel)).trace(*arrays, ids, window)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__gpu$xla.gpu.triton") == 3
    sizes = re.findall(r"tensor<((?:\d+x)+)", text)
    assert max(math.prod(map(int, x[:-1].split("x"))) for x in sizes) == math.prod(shapes[0])


def test_hidden_blocks_are_not_read():
    """NaN in a block of keys would reach every query that visits it, masked or not."""
    T, ids = 96, np.repeat([[1, 2, 3]], 32, axis=1)
    q, k, v = (jnp.ones((1, T, 1, 16)) for _ in range(3))
    call = jax.jit(flash.attention)
    # The last document is a block of keys of its own. So are the last 32 tokens of a window.
    for ids_BT, window in ((ids, NO_WINDOW), (np.ones((1, T), np.int32), 1)):
        out, _ = call(q, k.at[:, :64].set(jnp.nan), v.at[:, :64].set(jnp.nan), ids_BT, window)
        assert np.all(np.isfinite(out[:, 64:])) and np.all(np.isnan(out[:, :64]))
    # The first queries do not read later keys.
    out, _ = call(q, k.at[:, 32:].set(jnp.nan), v, np.ones((1, T), np.int32), NO_WINDOW)
    assert np.all(np.isfinite(out[:, :32]))
