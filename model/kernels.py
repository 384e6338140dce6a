"""Attention over packed rows, behind one function."""

import jax
import jax.numpy as jnp

# Rows up to this many tokens take one block: their logits fit in cache-sized memory anyway.
QUERY_BLOCK = 512


def attention(
    q_BTNH: jax.Array,
    k_BSKH: jax.Array,
    v_BSKH: jax.Array,
    *,
    segment_ids_BT: jax.Array,
    window: jax.Array,
) -> jax.Array:
    """Causal grouped-query attention within documents.

    Query t sees key s iff s <= t, both lie in the same segment, and t - s < window. Queries come
    already scaled. Softmax is float32; products are in the inputs' dtype.

    Args:
      q_BTNH: rotated and scaled queries.
      k_BSKH: rotated keys, S = T.
      v_BSKH: values.
      segment_ids_BT: int32, which document each token belongs to.
      window: int32 scalar, tokens a query sees, itself included; may be traced.

    Returns:
      `[B, T, N, H]` in the dtype of `v_BSKH`.
    """
    B, T, N, H = q_BTNH.shape
    K = k_BSKH.shape[2]
    q_BTKGH = q_BTNH.reshape(B, T, K, N // K, H)
    columns_S = jnp.arange(T)

    def attend(q_BTKGH, rows_T, segments_BT):
        logits_BKGTS = jnp.einsum(
            "BTKGH,BSKH->BKGTS", q_BTKGH, k_BSKH, preferred_element_type=jnp.float32
        )
        distance_TS = rows_T[:, None] - columns_S[None, :]
        near_TS = (distance_TS >= 0) & (distance_TS < window)
        same_BTS = segments_BT[:, :, None] == segment_ids_BT[:, None, :]
        mask_BTS = near_TS[None] & same_BTS
        logits_BKGTS = jnp.where(mask_BTS[:, None, None], logits_BKGTS, -1e30)
        weights_BKGTS = jax.nn.softmax(logits_BKGTS, axis=-1).astype(v_BSKH.dtype)
        return jnp.einsum("BKGTS,BSKH->BTKGH", weights_BKGTS, v_BSKH)

    if T <= QUERY_BLOCK or T % QUERY_BLOCK:
        out_BTKGH = attend(q_BTKGH, columns_S, segment_ids_BT)
    else:
        # Long rows: a block of queries at a time, recomputed in the backward pass, so that
        # [T, S] never exists whole.
        def blocks(x, axis):
            shape = (*x.shape[:axis], -1, QUERY_BLOCK, *x.shape[axis + 1 :])
            return jnp.moveaxis(x.reshape(shape), axis, 0)

        out = jax.lax.map(
            lambda block: jax.checkpoint(attend)(*block),
            (blocks(q_BTKGH, 1), blocks(columns_S, 0), blocks(segment_ids_BT, 1)),
        )
        out_BTKGH = jnp.moveaxis(out, 0, 1).reshape(q_BTKGH.shape)
    return out_BTKGH.reshape(B, T, N, H)
