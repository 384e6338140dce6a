"""The GPU's attention kernel, run by Pallas' interpreter, against numpy in float64."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model import kernels
from model.config import NO_WINDOW
from model.kernels import choice, flash, parts
from tests.models import small_model

SMALL = flash.Blocks(16, 32, 4, 2)  # queries and keys of a block, so that short rows have several


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(flash, "INTERPRET", True)
    monkeypatch.setattr(flash, "_choose_blocks", lambda *_: (SMALL, SMALL._replace(keys=16), SMALL))


def make_inputs(T: int, N: int, K: int, H: int, U: int, B: int = 2):
    """Scaled queries, keys, values, a gradient of the output, and ids of packed documents."""
    random = np.random.default_rng(T + H)
    q_BTNH, k_BSKH, v_BSKU, g_BTNU = (
        random.normal(size=(B, T, heads, width))
        for heads, width in ((N, H), (K, H), (K, U), (N, U))
    )
    ids_BT = np.sort(random.integers(1, 4, size=(B, T)), axis=1).astype(np.int32)
    ids_BT[:, -T // 8 :] = 0  # padding
    return q_BTNH / np.sqrt(H), k_BSKH, v_BSKU, g_BTNU, ids_BT


def in_float64(q_BTNH, k_BSKH, v_BSKU, g_BTNU, ids_BT, window) -> list[np.ndarray]:
    """The output and the gradients of q, k and v, by the formulas of softmax."""
    B, T, N, H = q_BTNH.shape
    K = k_BSKH.shape[2]
    q_BTKGH, g_BTKGU = (x.reshape(B, T, K, N // K, -1) for x in (q_BTNH, g_BTNU))
    distance_TS = np.arange(T)[:, None] - np.arange(T)
    mask_BTS = (ids_BT[:, :, None] == ids_BT[:, None]) & (distance_TS >= 0)
    mask_BTS &= distance_TS < window
    weights_BKGTS = np.exp(np.einsum("BTKGH,BSKH->BKGTS", q_BTKGH, k_BSKH))
    weights_BKGTS *= mask_BTS[:, None, None]
    weights_BKGTS /= weights_BKGTS.sum(-1, keepdims=True)
    out_BTKGU = np.einsum("BKGTS,BSKU->BTKGU", weights_BKGTS, v_BSKU)
    dweights_BKGTS = np.einsum("BTKGU,BSKU->BKGTS", g_BTKGU, v_BSKU)
    mean_BKGT1 = (weights_BKGTS * dweights_BKGTS).sum(-1, keepdims=True)
    dlogits_BKGTS = weights_BKGTS * (dweights_BKGTS - mean_BKGT1)
    return [
        out_BTKGU.reshape(B, T, N, -1),
        np.einsum("BKGTS,BSKH->BTKGH", dlogits_BKGTS, k_BSKH).reshape(B, T, N, H),
        np.einsum("BKGTS,BTKGH->BSKH", dlogits_BKGTS, q_BTKGH),
        np.einsum("BKGTS,BTKGU->BSKU", weights_BKGTS, g_BTKGU),
    ]


def by_kernel(q, k, v, g, ids, window):
    out, gradients = jax.vjp(lambda *qkv: flash.attention(*qkv, ids, window), q, k, v)
    return [out, *gradients(g)]


def assert_equal(ours, exact, tolerance: float):
    for x, y in zip(ours, exact, strict=True):
        # The gradient of q is 0 in a window of one token.
        assert np.linalg.norm(np.asarray(x, np.float64) - y) < tolerance * max(np.linalg.norm(y), 1)


@pytest.mark.long
def test_members_with_windows_of_their_own_in_float64():
    """Packed documents, shared keys, values narrower than keys, two tiles a head, odd length."""
    *inputs, ids = make_inputs(T=77, N=4, K=2, H=40, U=24)
    windows = [NO_WINDOW, 20, 1]
    members = jax.jit(jax.vmap(by_kernel, in_axes=(None, None, None, None, None, 0)))
    ours = members(*(jnp.asarray(x, jnp.float32) for x in inputs), ids, np.array(windows, np.int32))
    for member, window in enumerate(windows):
        assert_equal([x[member] for x in ours], in_float64(*inputs, ids, window), 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 6e-3)])
@pytest.mark.parametrize(
    "N, K, H, U",
    [(2, 2, 64, 64), (4, 1, 96, 96), (2, 1, 128, 128), (2, 2, 192, 128), (2, 1, 256, 256)],
)
def test_heads_of_64_to_256_in_float64(N, K, H, U, dtype, tolerance):
    *inputs, ids = make_inputs(T=77, N=N, K=K, H=H, U=U)
    inputs = [np.asarray(jnp.asarray(x, dtype), np.float64) for x in inputs]
    ours = jax.jit(by_kernel)(*(jnp.asarray(x, dtype) for x in inputs), ids, np.int32(30))
    assert [x.dtype for x in ours] == [dtype] * 4
    assert_equal(ours, in_float64(*inputs, ids, 30), tolerance)


@pytest.mark.long
def test_the_blocks_of_a_gpu_in_float64(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(flash, "INTERPRET", True)
    *inputs, ids = make_inputs(T=300, N=2, K=1, H=64, U=64)
    ours = jax.jit(by_kernel)(*(jnp.asarray(x, jnp.float32) for x in inputs), ids, np.int32(200))
    assert_equal(ours, in_float64(*inputs, ids, 200), 1e-6)


def test_one_launch_for_all_members_and_no_copy_of_what_they_share():
    """Forward, dq, and dk with dv: three kernels, whose grid counts members."""
    *inputs, ids = make_inputs(T=40, N=2, K=1, H=16, U=16)

    def jaxpr(function, *axes):
        return str(jax.make_jaxpr(function)(*inputs, ids, *axes))

    members = jax.vmap(by_kernel, in_axes=(None, None, None, None, None, 0))
    text, single = jaxpr(members, np.array([3, 40])), jaxpr(by_kernel, np.int32(3))
    assert text.count("pallas_call[") == single.count("pallas_call[") == 3
    assert "grid=(2, 3, 2, 2)" in text and "grid=(3, 2, 2)" in single


def test_triton_kernels_for_a_long_row_without_a_matrix_of_it(monkeypatch):
    """Lowered for CUDA, which needs no GPU, with all blocks of one; two members share launches."""
    monkeypatch.undo()
    T, members = 131_072, 2
    shapes = [
        (members, 1, T, heads, width) for heads, width in ((2, 96), (1, 96), (1, 64), (2, 64))
    ]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    ids, window = (jax.ShapeDtypeStruct((members, *x), jnp.int32) for x in ((1, T), ()))
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
        out = call(q, k.at[:, :64].set(jnp.nan), v.at[:, :64].set(jnp.nan), ids_BT, window)
        assert np.all(np.isfinite(out[:, 64:])) and np.all(np.isnan(out[:, :64]))
    # The first queries do not read later keys.
    out = call(q, k.at[:, 32:].set(jnp.nan), v, np.ones((1, T), np.int32), NO_WINDOW)
    assert np.all(np.isfinite(out[:, :32]))


def test_the_blocks_that_each_block_visits():
    """Rows of 16 tokens in blocks of 4, two rows with other documents: first and end."""
    indices_XT = jnp.arange(16).reshape(4, 4)

    def ranges(window, of_keys=False):
        ids_BT = np.array([[1] * 16, [1] * 8 + [2] * 8], np.int32)
        shard = parts.Shard(indices_XT, jnp.moveaxis(ids_BT.reshape(2, 4, 4), 0, 1))
        return jax.jit(flash._ranges, static_argnums=3)(shard, shard, window, of_keys).tolist()

    one, two = [[0, 1], [0, 2], [0, 3], [0, 4]], [[0, 1], [0, 2], [2, 3], [2, 4]]
    assert ranges(NO_WINDOW) == [one, two]
    assert ranges(1) == [[[0, 1], [1, 2], [2, 3], [3, 4]]] * 2
    one, two = [[0, 4], [1, 4], [2, 4], [3, 4]], [[0, 2], [1, 2], [2, 4], [3, 4]]
    assert ranges(NO_WINDOW, of_keys=True) == [one, two]


@pytest.mark.long
def test_keys_that_no_query_sees_add_nothing():
    """Parts of a ring agree: a document between two others, and keys beyond a window."""
    q, k, v, g, _ = (jnp.asarray(x, jnp.float32) for x in make_inputs(64, 2, 1, 16, 16, B=1))
    indices_T = jnp.arange(64)

    @jax.jit
    def parts_of(query_ids, key_ids, window):
        queries, keys = parts.Shard(indices_T + 64, query_ids), parts.Shard(indices_T, key_ids)
        inputs = (q, k, v, queries, keys, window)
        numbers = jnp.zeros(q.shape[:3])
        return flash.PARTS.forward(*inputs), flash.PARTS.backward(*inputs, numbers, numbers, g)

    ones = np.ones((1, 64), np.int32)
    around = np.repeat([[1, 3]], 32, axis=1)
    for ids, key_ids, window, first in (
        (2 * ones, around, NO_WINDOW, 0),
        (ones, ones, 1, 0),
        (ones, ones, 33, 32),
    ):
        (out_BTNU, lse_BTN), (dq_BTNH, *dkv) = parts_of(ids, key_ids, jnp.int32(window))
        for x in (out_BTNU, dq_BTNH):
            assert not np.any(x[:, first:]) and (not first or np.all(np.any(x[:, :first], (2, 3))))
        assert np.all(lse_BTN[:, first:] == parts.FORBIDDEN)
        assert first or not any(np.any(x) for x in dkv)


MISTAKES = {
    "the next token": lambda distance, window: (distance >= -1) & (distance < window),
    "one token more than the window": lambda distance, window: (
        (distance >= 0) & (distance <= window)
    ),
    "not the token itself": lambda distance, window: (distance > 0) & (distance < window),
}
CONFIG = small_model(vocab_size=8, embed_dim=8, num_heads=1, mlp_dim=8)


@pytest.mark.long
@pytest.mark.parametrize("mistake", [None, *MISTAKES, "other documents"])
def test_the_check_before_training_detects_a_wrong_mask(monkeypatch, mistake):
    def attend(q, k, v, ids, window):
        return flash.attention(q, k, v, 0 * ids if mistake == "other documents" else ids, window)

    if mistake in MISTAKES:
        monkeypatch.setattr(flash, "is_visible", MISTAKES[mistake])
    monkeypatch.setattr(choice, "choose", lambda *_: choice.Choice("flash", attend, "gpu"))
    if mistake is None:
        assert kernels.check(CONFIG, 256) == "attention: flash"
        return
    with pytest.raises(ValueError, match="attention kernel 'flash' is wrong on gpu: the output"):
        kernels.check(CONFIG, 256)
