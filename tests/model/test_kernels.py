"""Masks against literal matrices; kernels against one softmax over full rows."""

import dataclasses
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

from model import kernels
from model.config import NO_WINDOW
from model.kernels import blocks, choice, flash, parts, splash, xla
from tests.models import small_model


@jax.jit
def attention(q_BTNH, k_BSKH, v_BSKH, segment_ids_BT, window):
    return kernels.attention(q_BTNH, k_BSKH, v_BSKH, segment_ids_BT=segment_ids_BT, window=window)


def visible(segment_ids, window=NO_WINDOW) -> np.ndarray:
    """1 where query t (row) gives key s (column) any weight.

    With equal logits every visible key gets the same weight, and with unit vectors as values the
    output is the row of weights itself.
    """
    T = len(segment_ids)
    zeros = np.zeros((1, T, 1, T), np.float32)
    values_BSKH = np.eye(T, dtype=np.float32)[None, :, None, :]
    out_BTNH = attention(zeros, zeros, values_BSKH, np.array([segment_ids]), window)
    weights_TS = np.asarray(out_BTNH[0, :, 0])
    np.testing.assert_allclose(weights_TS.sum(-1), np.ones(T), rtol=1e-6)
    return (weights_TS > 0).astype(int)


def test_packed_documents_and_padding():
    np.testing.assert_array_equal(
        visible([1, 1, 1, 2, 2, 0]),
        [
            [1, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0],
            [0, 0, 0, 1, 0, 0],
            [0, 0, 0, 1, 1, 0],
            [0, 0, 0, 0, 0, 1],
        ],
    )


def test_a_window_within_packed_documents():
    np.testing.assert_array_equal(
        visible([1, 1, 1, 1, 2, 2, 2], window=3),
        [
            [1, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0, 0],
            [0, 1, 1, 1, 0, 0, 0],
            [0, 0, 0, 0, 1, 0, 0],
            [0, 0, 0, 0, 1, 1, 0],
            [0, 0, 0, 0, 1, 1, 1],
        ],
    )


def test_blind_distances_are_hidden():
    zeros, values = np.zeros((1, 5, 1, 5), np.float32), np.eye(5, dtype=np.float32)[:, None]
    out_BTNH = kernels.reference(zeros, zeros, values[None], np.ones((1, 5)), NO_WINDOW, (1, 2))
    np.testing.assert_array_equal(
        out_BTNH[0, :, 0] > 0,
        [
            [1, 0, 0, 0, 0],
            [0, 1, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [1, 0, 0, 1, 0],
            [1, 1, 0, 0, 1],
        ],
    )


def test_equal_segment_ids_far_apart_are_one_document():
    """Only ids decide: the pipeline never repeats one within a row."""
    np.testing.assert_array_equal(visible([1, 2, 1])[2], [1, 0, 1])


def plain(q_BTNH, k_BSKH, v_BSKH, segment_ids_BT, window):
    """One softmax over all keys, heads repeated: nothing of ours in it."""
    T, N = q_BTNH.shape[1:3]
    repeats = N // k_BSKH.shape[2]
    k_BSNH, v_BSNH = (jnp.repeat(x, repeats, axis=2) for x in (k_BSKH, v_BSKH))
    distance_TS = np.arange(T)[:, None] - np.arange(T)
    mask_BTS = (segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]) & (
        (distance_TS >= 0) & (distance_TS < window)
    )
    logits_BNTS = jnp.einsum("BTNH,BSNH->BNTS", q_BTNH, k_BSNH, precision="highest")
    logits_BNTS = jnp.where(mask_BTS[:, None], logits_BNTS, -jnp.inf)
    weights_BNTS = jax.nn.softmax(logits_BNTS)
    return jnp.einsum("BNTS,BSNH->BTNH", weights_BNTS, v_BSNH, precision="highest")


def random_inputs(T: int, N: int = 4, K: int = 2, H: int = 8, B: int = 2):
    random = np.random.default_rng(T)
    q_BTNH = random.normal(size=(B, T, N, H)).astype(np.float32)
    k_BSKH, v_BSKH = random.normal(size=(2, B, T, K, H)).astype(np.float32)
    segment_ids_BT = np.sort(random.integers(1, 4, size=(B, T)), axis=1).astype(np.int32)
    return q_BTNH, k_BSKH, v_BSKH, segment_ids_BT


@pytest.mark.parametrize(
    "T, unrolled, window",
    [
        (40, 512, 5),  # one block
        (300, 512, NO_WINDOW),  # three unrolled blocks, the last one short
        (64, 16, 5),  # four blocks, one after another
        (30, 16, NO_WINDOW),  # longer than a block, and not a multiple
    ],
)
def test_blocks_equal_one_softmax(monkeypatch, T, unrolled, window):
    monkeypatch.setattr(xla, "UNROLLED", unrolled)
    monkeypatch.setattr(blocks, "BLOCK_LENGTHS", (16,))

    def ours(q, k, v, segment_ids_BT, window):
        return kernels.attention(q, k, v, segment_ids_BT=segment_ids_BT, window=window)

    assert_equal_to_plain(ours, random_inputs(T), window)


def in_float64(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> np.ndarray:
    """`plain` in numpy and float64."""
    T, G = q_BTNH.shape[1], q_BTNH.shape[2] // k_BSKH.shape[2]
    k_BSNH, v_BSNU = (np.repeat(x, G, axis=2) for x in (k_BSKH, v_BSKU))
    distance_TS = np.arange(T)[:, None] - np.arange(T)
    mask_BTS = segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]
    mask_BTS &= (distance_TS >= 0) & (distance_TS < window)
    weights_BNTS = np.exp(np.einsum("BTNH,BSNH->BNTS", q_BTNH, k_BSNH)) * mask_BTS[:, None]
    weights_BNTS /= weights_BNTS.sum(-1, keepdims=True)
    return np.einsum("BNTS,BSNU->BTNU", weights_BNTS, v_BSNU)


@pytest.mark.parametrize(
    "T, window, dtype, tolerance",
    [  # one block of queries; three, the last one short
        (60, NO_WINDOW, "float32", 1e-5),
        (300, 40, "float32", 1e-5),
        (300, NO_WINDOW, "bfloat16", 0.02),
    ],
)
def test_gradients_against_differences_in_float64(T, window, dtype, tolerance):
    """Documents packed, two queries a key, values narrower than keys."""
    *inputs, segments = unequal_inputs(T)
    assert len(np.unique(segments[0])) > 1
    inputs = [jnp.asarray(x, dtype) for x in inputs]
    random = np.random.default_rng(0)
    weights = random.normal(size=(*inputs[0].shape[:3], inputs[2].shape[3]))

    def ours(*inputs):
        out = kernels.attention(*inputs, segment_ids_BT=segments, window=window)
        return (out.astype(jnp.float32) * weights).sum()

    gradients = jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(*inputs)
    exact = [np.asarray(x, np.float64) for x in inputs]

    def slope(index: int, direction: np.ndarray) -> float:
        ends = []
        for sign in (1e-5, -1e-5):
            moved = [x + sign * direction if i == index else x for i, x in enumerate(exact)]
            ends.append((in_float64(*moved, segments, window) * weights).sum())
        return (ends[0] - ends[1]) / 2e-5

    for index, gradient in enumerate(gradients):
        assert gradient.dtype == dtype
        gradient = np.asarray(gradient, np.float64)
        size = np.linalg.norm(gradient)
        # Along itself, and where a part that is missing shows.
        for direction in (gradient / size, random.normal(size=gradient.shape)):
            directional = (gradient * direction).sum()
            assert directional == pytest.approx(slope(index, direction), abs=tolerance * size)


def test_large_logits_do_not_overflow():
    """exp(200) has no float32; the largest logit of a row must come off first."""
    q, k, v, segments = random_inputs(12)
    ours = attention(40 * q, k, v, segments, NO_WINDOW)
    np.testing.assert_allclose(ours, jax.jit(plain)(40 * q, k, v, segments, NO_WINDOW), atol=1e-4)


def test_key_blocks_without_a_query_are_skipped():
    """Rows of 16 tokens in blocks of 4: for each block of queries the first and the end."""
    indices_XT = jnp.arange(16).reshape(4, 4)

    def key_ranges(ids, window):
        shard = parts.Shard(indices_XT, jnp.array(ids).reshape(4, 1, 4))
        return [x.tolist() for x in blocks._key_ranges(shard, shard, window)]

    one_document = [1] * 16
    assert key_ranges(one_document, NO_WINDOW) == [[0, 0, 0, 0], [1, 2, 3, 4]]
    # The first query of block 2 is token 8: of two tokens it sees 7, of one only itself.
    assert key_ranges(one_document, 2) == [[0, 0, 1, 2], [1, 2, 3, 4]]
    assert key_ranges(one_document, 1) == [[0, 1, 2, 3], [1, 2, 3, 4]]
    # A document ends with the second block; another within the third.
    assert key_ranges([1] * 8 + [2] * 2 + [3] * 6, NO_WINDOW) == [[0, 0, 2, 2], [1, 2, 3, 4]]


def test_long_rows_never_hold_a_whole_matrix():
    """No value of the gradient has two axes of a row's length."""
    T = 2000
    q, k, v, segments = random_inputs(T, B=1)

    def total(q, k, v):
        return kernels.attention(q, k, v, segment_ids_BT=segments, window=NO_WINDOW).sum()

    compiled = jax.jit(jax.grad(total, argnums=(0, 1, 2))).lower(q, k, v).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < T * T * 4


def unequal_inputs(T: int):
    """MLA's: values narrower than keys; and grouped."""
    q, k, v, segments = random_inputs(T, H=16)
    return q, k, v[..., :8], segments


def assert_equal_to_plain(function, inputs, window):
    q, k, v, segments = inputs
    weights = jnp.cos(jnp.arange(q[..., : v.shape[-1]].size, dtype=jnp.float32))

    def results(function):
        def total(q, k, v):
            out = function(q, k, v, segments, window)
            return (out.reshape(-1) * weights).sum(), out

        gradients, out = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(q, k, v)
        return out, *gradients

    for x, y in zip(results(function), results(plain), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.mark.parametrize("window", [NO_WINDOW, 9])
def test_blocks_with_unequal_heads(monkeypatch, window):
    monkeypatch.setattr(blocks, "BLOCK_LENGTHS", (16,))

    def attend(q, k, v, segments, window):
        shard = parts.Shard(jnp.arange(40), segments)
        return parts.attention(blocks.PARTS, q, k, v, shard, window)

    assert_equal_to_plain(attend, unequal_inputs(40), window)


def test_the_reference_of_the_check_is_plain_attention():
    assert_equal_to_plain(xla.reference, unequal_inputs(24), 7)


@pytest.mark.slow
@pytest.mark.parametrize("window", [NO_WINDOW, 40])
def test_splash_attention_interpreted(monkeypatch, window):
    """The TPU's kernel as XLA runs it here, with a traced window; 130 is no multiple of a block."""
    monkeypatch.setattr(splash, "INTERPRET", True)
    monkeypatch.setattr(splash, "BLOCK", 128)

    def attend(q, k, v, segments, window):
        return jax.jit(splash.attention)(q, k, v, segments, jnp.int32(window))

    assert_equal_to_plain(attend, unequal_inputs(130), window)


@pytest.mark.slow
def test_members_of_a_sweep_have_windows_of_their_own(monkeypatch):
    """Splash takes other blocks for each member."""
    monkeypatch.setattr(splash, "INTERPRET", True)
    monkeypatch.setattr(splash, "BLOCK", 128)
    inputs, windows = unequal_inputs(260), jnp.array([3, 260])

    def gradients(function):
        def total(q, window):
            return jnp.sin(function(q, *inputs[1:], window)).sum()

        return jax.jit(jax.vmap(jax.grad(total), in_axes=(None, 0)))(inputs[0], windows)

    np.testing.assert_allclose(gradients(splash.attention), gradients(plain), atol=2e-5)


@pytest.mark.parametrize(
    "window, expected",
    [
        (NO_WINDOW, [[], [0], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5], list(range(8))]),
        (3, [[], [0], [0, 1, 2], [], [4, 5], []]),
    ],
)
def test_what_splash_lets_a_query_see_of_keys_far_away(window, expected):
    """Keys of two shards, at rows that 16 bits do not hold."""
    keys_S = jnp.array([4, 5, 6, 7, 200_000, 200_001, 200_002, 200_003])
    codes_T = splash._codes(jnp.array([3, 4, 6, 50, 200_001, 1_000_000]), keys_S, window)
    near_TS = np.asarray(splash._near(codes_T[:, None], jnp.arange(8)))
    assert [np.flatnonzero(near_S).tolist() for near_S in near_TS] == expected


def test_splash_fetches_the_next_block_that_it_takes():
    block_mask_XY = jnp.array([[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool)
    by_query, by_key = (splash._mask_info(block_mask_XY, jnp.zeros(1), axis) for axis in (1, 0))
    assert by_query.data_next.tolist() == [[[0, 3, 3, 3], [2, 2, 2, 0], [0, 0, 0, 0]]]
    assert by_key.data_next.tolist() == [[[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]]


@pytest.mark.slow
def test_keys_that_no_query_sees_add_nothing(monkeypatch):
    """Splash masks all of their block (documents 1 and 3 around 2) or skips it (the window).

    With a window of 64 the first 63 queries see some of it, and the rest nothing.
    """
    monkeypatch.setattr(splash, "INTERPRET", True)
    q, k, v, _ = unequal_inputs(128)
    query_ids, key_ids = (np.tile(x, (2, 64)) for x in ([2, 2], [1, 3]))
    indices_T = jnp.arange(128)
    keys = parts.Shard(indices_T, jnp.sort(key_ids, axis=1))

    @jax.jit
    def parts_of(ids, window):
        queries = parts.Shard(indices_T + 128, ids)
        lse_BTN, ones = jnp.zeros(q.shape[:3]), jnp.ones((*q.shape[:3], v.shape[3]))
        inputs = (q, k, v, queries, keys, window)
        return splash.PARTS.forward(*inputs), splash.PARTS.backward(*inputs, lse_BTN, lse_BTN, ones)

    for ids, window, first in ((query_ids, NO_WINDOW, 0), (query_ids - 1, 1, 0), (key_ids, 64, 63)):
        (out_BTNU, lse_BTN), (dq_BTNH, *dkv) = parts_of(jnp.sort(ids, axis=1), jnp.int32(window))
        for x in (out_BTNU, dq_BTNH):
            assert not np.any(x[:, first:])
        assert np.all(lse_BTN[:, first:] == parts.FORBIDDEN)
        assert first or not any(np.any(x) for x in dkv)
        assert all(np.all(np.isfinite(x)) for x in dkv)


class Device(NamedTuple):
    """A stand-in for JAX's `AbstractDevice`, which in jax 0.7 has no platform."""

    device_kind: str
    num_cores: int
    platform: str


def on(platform: str, kind: str = "NVIDIA A100-SXM4-40GB", **sizes: int):
    """The mesh of a device that is not here."""
    device = Device(kind, 1, platform)
    axes = ("sweep", "data", "fsdp", "sequence", "tensor")
    shape = tuple(sizes.get(axis, 1) for axis in axes)
    return jax.sharding.use_abstract_mesh(
        jax.sharding.AbstractMesh(shape, axes, abstract_device=device)
    )


@pytest.mark.parametrize(
    "platform, T, H, U, dtype, expected, why",
    [
        ("cpu", 4096, 64, 64, "float32", "xla", ""),
        ("tpu", 65_536, 192, 128, "bfloat16", "splash", ""),
        ("tpu", 131_072, 64, 64, "bfloat16", "xla", "mesh.sequence=2"),
        ("gpu", 131_072, 192, 128, "bfloat16", "flash", ""),
        ("cuda", 4095, 60, 256, "float32", "flash", ""),
        ("gpu", 4096, 64, 64, "float64", "xla", "bfloat16, float16, float32, not float64"),
        ("gpu", 4096, 320, 64, "bfloat16", "xla", "up to 256 wide, not 320"),
    ],
)
def test_the_kernel_for_a_platform(platform, T, H, U, dtype, expected, why):
    with on(platform):
        choice = kernels.choose(T, H, U, dtype)
    assert choice.name == expected and why in choice.why and bool(why) == bool(choice.why)


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("Tesla T4", "xla"),
        ("NVIDIA T4", "xla"),
        ("Tesla V100-SXM2-16GB", "xla"),
        ("NVIDIA GeForce RTX 2080 Ti", "xla"),
        ("Quadro RTX 6000", "xla"),
        ("AMD Instinct MI300X", "xla"),
        ("NVIDIA A10G", "flash"),
        ("NVIDIA L4", "flash"),
        ("NVIDIA GeForce RTX 4090", "flash"),
        ("NVIDIA RTX 6000 Ada Generation", "flash"),
        ("NVIDIA H100 80GB HBM3", "flash"),
        ("NVIDIA B200", "flash"),
    ],
)
def test_flash_attention_from_ampere_on(kind, expected):
    with on("gpu", kind):
        choice = kernels.choose(4096, 64, 64, "bfloat16")
    assert choice.name == expected
    assert (f"compute capability 8.0 or more, not {kind}" in choice.why) == (expected == "xla")


def test_a_jax_without_pallas_for_triton_takes_plain_xla(monkeypatch):
    monkeypatch.delattr("model.kernels.flash")
    monkeypatch.setitem(sys.modules, "model.kernels.flash", None)
    with on("gpu"):
        choice = kernels.choose(4096, 64, 64, "bfloat16")
    assert choice.name == "xla" and f"newer JAX than {jax.__version__}" in choice.why


@pytest.mark.parametrize(
    "platform, T, kernel, expected, why",
    [
        ("tpu", 131_072, "auto", splash.PARTS, ""),
        ("tpu", 2**20, "auto", blocks.PARTS, "mesh.sequence=16"),
        ("tpu", 131_072, "xla", blocks.PARTS, "model.attention=xla"),
        ("gpu", 131_072, "auto", flash.PARTS, ""),
        ("gpu", 131_072, "xla", blocks.PARTS, "model.attention=xla"),
        ("cpu", 131_072, "auto", blocks.PARTS, ""),
    ],
)
def test_rows_split_over_devices_take_the_ring(platform, T, kernel, expected, why):
    with on(platform, sequence=4):
        choice = kernels.choose(T, 64, 64, "bfloat16", kernel)
    assert choice.name == "ring" and choice.attend.keywords["parts"] == expected
    assert why in choice.why and bool(why) == bool(choice.why)


CONFIG = small_model(vocab_size=8, embed_dim=8, num_heads=2, mlp_dim=8)


def test_the_check_names_the_kernel():
    assert kernels.check(CONFIG, 32) == "attention: xla"


@pytest.mark.parametrize(
    "mistake, says",
    [
        (lambda q, k, v, ids, window: plain(q, k, v, 0 * ids, window), "the output"),
        (lambda q, k, v, ids, window: plain(q, k, v, ids, NO_WINDOW), "(window 4 of 32"),
        (lambda q, k, v, ids, window: plain(q, jax.lax.stop_gradient(k), v, ids, window), "of k"),
    ],
)
def test_the_check_refuses_a_wrong_kernel(monkeypatch, mistake, says):
    """Documents leak; the window is ignored; a gradient is missing."""
    monkeypatch.setattr(xla, "attention", mistake)
    with pytest.raises(ValueError, match="attention kernel 'xla' is wrong on cpu") as error:
        kernels.check(CONFIG, 32)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_the_check_announces_plain_xla():
    config = dataclasses.replace(CONFIG, attention="xla")
    assert kernels.check(config, 32) == "attention: xla (model.attention=xla)"


def test_a_kernel_that_jax_no_longer_has_is_refused(monkeypatch):
    monkeypatch.delattr(splash_attention_kernel, "_splash_attention_bwd_dq")
    monkeypatch.setattr(splash, "INTERPRET", True)
    tpu = choice.Choice("splash", splash.attention, "tpu")
    monkeypatch.setattr(choice, "choose", lambda *_: tpu)
    says = "'splash' refuses on tpu: AttributeError: .*_bwd_dq.*; set model.attention=xla, and rep"
    with pytest.raises(ValueError, match=says):
        kernels.check(CONFIG, 32)
