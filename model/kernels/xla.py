"""Attention in plain XLA: the kernel of CPUs, and of whatever the others cannot do."""

import jax
import jax.numpy as jnp

from model.kernels import blocks, parts

# Rows up to this length keep their weights for the backward pass: up to eight blocks of queries.
UNROLLED = 512


def attention(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> jax.Array:
    """As `model.kernels.attention`, on one device."""
    T = q_BTNH.shape[1]
    if T <= UNROLLED:
        return _unrolled(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)
    shard = parts.Shard(jnp.arange(T), segment_ids_BT)
    return parts.attention(blocks.PARTS, q_BTNH, k_BSKH, v_BSKU, shard, window)


def reference(
    q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, blind: tuple[int, int] | None = None
) -> jax.Array:
    """One softmax over whole rows, in float32 and full precision: what every kernel must equal.

    Start reading here. Query t sees key s if it comes no later, fewer than `window` tokens before,
    and in the same document; every query sees at least itself. Here alone keys may be hidden at
    distances t - s, too: those from the first to the last in `blind`.
    """
    T, N = q_BTNH.shape[1:3]
    q_BTNH, k_BSKH, v_BSKU = (x.astype(jnp.float32) for x in (q_BTNH, k_BSKH, v_BSKU))
    k_BSNH, v_BSNU = (jnp.repeat(x, N // x.shape[2], axis=2) for x in (k_BSKH, v_BSKU))
    distance_TS = jnp.arange(T)[:, None] - jnp.arange(T)
    mask_BTS = (distance_TS >= 0) & (distance_TS < window)
    if blind is not None:
        low, high = blind
        mask_BTS &= (distance_TS < low) | (distance_TS > high)
    mask_BTS &= segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]
    logits_BNTS = jnp.einsum("BTNH,BSNH->BNTS", q_BTNH, k_BSNH, precision="highest")
    weights_BNTS = jax.nn.softmax(jnp.where(mask_BTS[:, None], logits_BNTS, -jnp.inf))
    return jnp.einsum("BNTS,BSNU->BTNU", weights_BNTS, v_BSNU, precision="highest")


def _unrolled(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> jax.Array:
    """Up to eight blocks of queries, each with no more keys than its last query sees."""
    B, T, N, H = q_BTNH.shape
    K, U = k_BSKH.shape[2], v_BSKU.shape[3]
    q_BTKGH = q_BTNH.reshape(B, T, K, N // K, H)
    indices_T = jnp.arange(T)

    def attend(q_BTKGH, indices_T, segments_BT, S):
        """These queries over the first S keys."""
        logits_BKGTS = jnp.einsum(
            "BTKGH,BSKH->BKGTS", q_BTKGH, k_BSKH[:, :S], preferred_element_type=jnp.float32
        )
        distance_TS = indices_T[:, None] - jnp.arange(S)
        near_TS = (distance_TS >= 0) & (distance_TS < window)
        same_BTS = segments_BT[:, :, None] == segment_ids_BT[:, None, :S]
        # Added, and the sum divided out after the product with v: the gradient needs no mask and
        # no sum over [T, S].
        logits_BKGTS += jnp.where(near_TS & same_BTS, 0.0, -1e30)[:, None, None]
        top_BKGT1 = jax.lax.stop_gradient(logits_BKGTS.max(axis=-1, keepdims=True))
        weights_BKGTS = jnp.exp(logits_BKGTS - top_BKGT1)
        total_BKGT1 = weights_BKGTS.sum(axis=-1, keepdims=True)
        weights_BKGTS = weights_BKGTS.astype(v_BSKU.dtype)
        out_BKGTU = jnp.einsum(
            "BKGTS,BSKU->BKGTU", weights_BKGTS, v_BSKU[:, :S], preferred_element_type=jnp.float32
        )
        return jnp.moveaxis(out_BKGTU / total_BKGT1, 3, 1).astype(v_BSKU.dtype)

    block = max(128, -(-T // 8))
    out_BTKGU = jnp.concatenate(
        [
            attend(q_BTKGH[:, i:j], indices_T[i:j], segment_ids_BT[:, i:j], S=j)
            for i, j in ((i, min(i + block, T)) for i in range(0, T, block))
        ],
        axis=1,
    )
    return out_BTKGU.reshape(B, T, N, U)
