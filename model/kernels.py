"""Attention over packed rows, behind one function."""

import jax
import jax.numpy as jnp

# Rows longer than this take their queries a block of this many at a time.
QUERY_BLOCK = 512


def attention(
    q_BTNH: jax.Array,
    k_BSKH: jax.Array,
    v_BSKU: jax.Array,
    *,
    segment_ids_BT: jax.Array,
    window: jax.typing.ArrayLike,
) -> jax.Array:
    """Causal grouped-query attention within documents.

    Query t sees key s iff s <= t, both lie in the same segment, and t - s < window. Queries come
    already scaled. Softmax is float32; products are in the inputs' dtype.

    Args:
      q_BTNH: rotated and scaled queries.
      k_BSKH: rotated keys, S = T.
      v_BSKU: values; their width may differ from the keys' (MLA).
      segment_ids_BT: int32, which document each token belongs to.
      window: int32 scalar, tokens a query sees, itself included; may be traced.

    Returns:
      `[B, T, N, U]` in the dtype of `v_BSKU`.
    """
    B, T, N, H = q_BTNH.shape
    K = k_BSKH.shape[2]
    q_BTKGH = q_BTNH.reshape(B, T, K, N // K, H)
    rows_T = jnp.arange(T)

    def attend(q_BTKGH, rows_T, segments_BT, S=T):
        """These queries over the first S keys."""
        logits_BKGTS = jnp.einsum(
            "BTKGH,BSKH->BKGTS", q_BTKGH, k_BSKH[:, :S], preferred_element_type=jnp.float32
        )
        distance_TS = rows_T[:, None] - jnp.arange(S)
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

    if T <= QUERY_BLOCK or T % QUERY_BLOCK:
        # Up to eight blocks, unrolled, each with no more keys than its last query sees.
        block = max(128, -(-T // 8))
        out_BTKGU = jnp.concatenate(
            [
                attend(q_BTKGH[:, i:j], rows_T[i:j], segment_ids_BT[:, i:j], S=j)
                for i, j in ((i, min(i + block, T)) for i in range(0, T, block))
            ],
            axis=1,
        )
    else:
        # Long rows: a block of queries at a time, recomputed in the backward pass, so that
        # [T, S] never exists whole.
        def blocks(x, axis):
            shape = (*x.shape[:axis], -1, QUERY_BLOCK, *x.shape[axis + 1 :])
            return jnp.moveaxis(x.reshape(shape), axis, 0)

        out = jax.lax.map(
            lambda block: jax.checkpoint(attend)(*block),
            (blocks(q_BTKGH, 1), blocks(rows_T, 0), blocks(segment_ids_BT, 1)),
        )
        out_BTKGU = jnp.moveaxis(out, 0, 1)
    return out_BTKGU.reshape(B, T, N, v_BSKU.shape[-1])
