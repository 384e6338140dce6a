"""Who sees whom, as literal matrices; blocks against one plain softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model import kernels
from model.positions import NO_WINDOW


def visible(segment_ids, window=NO_WINDOW) -> np.ndarray:
    """1 where query t (row) gives key s (column) any weight.

    With equal logits every visible key gets the same weight, and with unit vectors as values the
    output is the row of weights itself.
    """
    T = len(segment_ids)
    zeros = jnp.zeros((1, T, 1, T))
    values_BSKH = jnp.eye(T)[None, :, None, :]
    out_BTNH = kernels.attention(
        zeros, zeros, values_BSKH, segment_ids_BT=jnp.array([segment_ids]), window=window
    )
    weights_TS = np.asarray(out_BTNH[0, :, 0])
    np.testing.assert_allclose(weights_TS.sum(-1), np.ones(T), rtol=1e-6)
    return (weights_TS > 0).astype(int)


def test_causal():
    np.testing.assert_array_equal(
        visible([1, 1, 1, 1]),
        [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 1, 1, 1],
        ],
    )


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


def test_a_window_counts_the_query_itself():
    np.testing.assert_array_equal(
        visible([1, 1, 1, 1, 1], window=2),
        [
            [1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [0, 1, 1, 0, 0],
            [0, 0, 1, 1, 0],
            [0, 0, 0, 1, 1],
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


def test_a_window_of_one_sees_itself_only():
    np.testing.assert_array_equal(visible([1, 1, 1], window=1), np.eye(3))


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


def output_and_gradients(function, q, k, v, *rest):
    """The output, and gradients of a sum that weighs every entry differently."""
    weights = jnp.cos(jnp.arange(q.size, dtype=jnp.float32)).reshape(q.shape)

    def total(q, k, v):
        out = function(q, k, v, *rest)
        return (out * weights).sum(), out

    gradients, out = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(q, k, v)
    return out, *gradients


@pytest.mark.parametrize("window", [NO_WINDOW, 5])
@pytest.mark.parametrize(
    "T, query_block",
    [
        (40, 512),  # one block
        (300, 512),  # three unrolled blocks, the last one short
        (64, 16),  # four blocks, one after another
        (30, 16),  # longer than a block, and not a multiple
    ],
)
def test_blocks_equal_one_softmax(monkeypatch, T, query_block, window):
    monkeypatch.setattr(kernels, "QUERY_BLOCK", query_block)
    inputs = random_inputs(T)

    def ours(q, k, v, segment_ids_BT):
        return kernels.attention(q, k, v, segment_ids_BT=segment_ids_BT, window=window)

    def theirs(*inputs):
        return plain(*inputs, window)

    expected = output_and_gradients(theirs, *inputs)
    for x, y in zip(output_and_gradients(ours, *inputs), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


def test_a_traced_window_is_the_same():
    q, k, v, segments = random_inputs(20)

    def run(window):
        return kernels.attention(q, k, v, segment_ids_BT=segments, window=window)

    np.testing.assert_allclose(jax.jit(run)(jnp.int32(3)), run(3), atol=1e-6)


def test_large_logits_do_not_overflow():
    """exp(200) has no float32; the largest logit of a row must come off first."""
    q, k, v, segments = random_inputs(12)
    ours = kernels.attention(40 * q, k, v, segment_ids_BT=segments, window=NO_WINDOW)
    np.testing.assert_allclose(ours, plain(40 * q, k, v, segments, NO_WINDOW), atol=1e-4)


def test_bfloat16_in_and_out_with_a_float32_softmax():
    q, k, v, segments = (jnp.asarray(x) for x in random_inputs(200))
    low = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    out = kernels.attention(*low, segment_ids_BT=segments, window=NO_WINDOW)
    assert out.dtype == jnp.bfloat16
    # The inputs' own rounding taken out, what remains is one rounding of weights and of the output.
    expected = plain(*(x.astype(jnp.float32) for x in low), segments, NO_WINDOW)
    np.testing.assert_allclose(out.astype(jnp.float32), expected, atol=0.02)
