"""Attention in plain XLA: the kernel for CPUs, and the fallback for all other devices."""

import jax
import jax.numpy as jnp

from ropewalk.model.kernels import blocks, parts
from ropewalk.model.kernels.matmul import product
from ropewalk.model.mask import attention_mask

# Rows up to this length store the weights for the backward pass, in up to eight query blocks.
UNROLLED = 512


def attention(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> tuple[jax.Array, jax.Array]:
    """Compute `Choice.attend` on one device."""
    if q_BTNH.shape[1] <= UNROLLED:
        return _unrolled(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)
    return parts.attention(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, parts=blocks.PARTS)


def reference(
    q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, masked_distances: tuple[int, int] | None = None
) -> tuple[jax.Array, jax.Array]:
    """Compute attention with one softmax over full rows, in float32 and full precision.

    This is the definition that every kernel must match; start reading here. `model.mask` defines
    which keys a query attends to. Only this kernel implements `masked_distances`.
    """
    T, N = q_BTNH.shape[1:3]
    q_BTNH, k_BSKH, v_BSKU = (x.astype(jnp.float32) for x in (q_BTNH, k_BSKH, v_BSKU))
    indices_T = jnp.arange(T)
    mask_BTS = attention_mask(
        indices_T, indices_T, segment_ids_BT, segment_ids_BT, window, masked_distances
    )
    weights_BNTS, lse_BNT = softmax(masked_logits(q_BTNH, k_BSKH, mask_BTS))
    v_BSNU = jnp.repeat(v_BSKU, N // v_BSKU.shape[2], axis=2)
    out_BTNU = jnp.einsum("BNTS,BSNU->BTNU", weights_BNTS, v_BSNU, precision="highest")
    return out_BTNU, lse_BNT.swapaxes(1, 2)


def softmax(logits_BNTS: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the weights of each query's keys, and the log-sum-exp of their logits, `[B, N, T]`."""
    return jax.nn.softmax(logits_BNTS), jax.nn.logsumexp(logits_BNTS, axis=-1)


def masked_logits(q_BTNH, k_BSKH, mask_BTS) -> jax.Array:
    """Return the logits `[B, N, T, S]` of queries that include all scales; masked ones are -inf."""
    k_BSNH = jnp.repeat(k_BSKH, q_BTNH.shape[2] // k_BSKH.shape[2], axis=2)
    logits_BNTS = jnp.einsum("BTNH,BSNH->BNTS", q_BTNH, k_BSNH, precision="highest")
    return jnp.where(mask_BTS[:, None], logits_BNTS, -jnp.inf)


def _unrolled(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> tuple[jax.Array, jax.Array]:
    """Compute attention in up to eight query blocks, each up to the last key that it can attend to.

    The queries of all heads that share a key are rows of one product: Q is T * G.
    """
    B, T, N, H = q_BTNH.shape
    K, U = k_BSKH.shape[2], v_BSKU.shape[3]
    q_BKQH = q_BTNH.reshape(B, T, K, N // K, H).swapaxes(1, 2).reshape(B, K, -1, H)
    k_BKSH, v_BKSU = k_BSKH.swapaxes(1, 2), v_BSKU.swapaxes(1, 2)
    out_BKQU, lse_BKQ = _by_key(q_BKQH, k_BKSH, v_BKSU, segment_ids_BT, window)
    out_BTNU = out_BKQU.reshape(B, K, T, N // K, U).swapaxes(1, 2).reshape(B, T, N, U)
    return out_BTNU, lse_BKQ.reshape(B, K, T, N // K).swapaxes(1, 2).reshape(B, T, N)


@jax.custom_vjp
def _by_key(q_BKQH, k_BKSH, v_BKSU, segment_ids_BT, window) -> tuple[jax.Array, jax.Array]:
    """Compute `_unrolled` with the key heads in front: XLA's CPU products then need no copies."""
    return _forward(q_BKQH, k_BKSH, v_BKSU, segment_ids_BT, window)[0]


def _query_blocks(q_BKQH, T: int) -> list[tuple[slice, slice, int]]:
    """Return for each query block its tokens, its rows of `q_BKQH`, and its number of keys."""
    length, G = max(128, -(-T // 8)), q_BKQH.shape[2] // T
    ends = [(i, min(i + length, T)) for i in range(0, T, length)]
    return [(slice(i, j), slice(i * G, j * G), j) for i, j in ends]


def _forward(q_BKQH, k_BKSH, v_BKSU, segment_ids_BT, window):
    T = k_BKSH.shape[2]
    indices_T = jnp.arange(T)
    saved, lse = [], []
    for tokens, rows, S in _query_blocks(q_BKQH, T):
        logits_BKQS = product("BKQH,BKSH->BKQS", q_BKQH[:, :, rows], k_BKSH[:, :, :S])
        mask_BTS = attention_mask(
            indices_T[tokens],
            indices_T[:S],
            segment_ids_BT[:, tokens],
            segment_ids_BT[:, :S],
            window,
        )
        # Add a bias instead of selecting: XLA fuses the sum into the loop that finds the maximum.
        bias_BTS = jnp.where(mask_BTS, 0.0, -1e30)
        logits_BKQS += jnp.repeat(bias_BTS, q_BKQH.shape[2] // T, axis=1)[:, None]
        top_BKQ1 = logits_BKQS.max(axis=-1, keepdims=True)
        weights_BKQS = jnp.exp(logits_BKQS - top_BKQ1)
        total_BKQ1 = weights_BKQS.sum(axis=-1, keepdims=True)
        lse.append((top_BKQ1 + jnp.log(total_BKQ1))[..., 0])
        # Divide by the sum after the product with v, which has fewer entries.
        weights_BKQS = weights_BKQS.astype(v_BKSU.dtype)
        sum_BKQU = product("BKQS,BKSU->BKQU", weights_BKQS, v_BKSU[:, :, :S])
        saved.append((weights_BKQS, total_BKQ1, sum_BKQU))
    out_BKQU = jnp.concatenate([sum_BKQU / total for _, total, sum_BKQU in saved], axis=2)
    outputs = out_BKQU.astype(v_BKSU.dtype), jnp.concatenate(lse, axis=2)
    return outputs, (q_BKQH, k_BKSH, v_BKSU, saved)


def _backward(residuals, gradients):
    """Compute the gradients from the stored weights, without a mask and without exponentials."""
    (q_BKQH, k_BKSH, v_BKSU, saved), (g_BKQU, g_BKQ) = residuals, gradients
    dq, dk, dv = [], [], []
    for (_, rows, S), block in zip(_query_blocks(q_BKQH, k_BKSH.shape[2]), saved, strict=True):
        weights_BKQS, total_BKQ1, sum_BKQU = block
        g_block_BKQU = g_BKQU[:, :, rows].astype(jnp.float32) / total_BKQ1
        mean_BKQ1 = jnp.sum(g_block_BKQU * sum_BKQU, axis=-1, keepdims=True)
        # Without a reader of the log-sum-exp its gradient is a constant 0, which XLA removes.
        mean_BKQ1 = (mean_BKQ1 - g_BKQ[:, :, rows, None]) / total_BKQ1
        g_block_BKQU = g_block_BKQU.astype(v_BKSU.dtype)
        # The maximum that was subtracted cancels: it scales the weights and their sum alike.
        dweights_BKQS = product("BKQU,BKSU->BKQS", g_block_BKQU, v_BKSU[:, :, :S])
        dlogits_BKQS = (weights_BKQS * (dweights_BKQS - mean_BKQ1)).astype(q_BKQH.dtype)
        dq.append(product("BKQS,BKSH->BKQH", dlogits_BKQS, k_BKSH[:, :, :S]))
        dk.append(product("BKQS,BKQH->BKSH", dlogits_BKQS, q_BKQH[:, :, rows]))
        dv.append(product("BKQS,BKQU->BKSU", weights_BKQS, g_block_BKQU))
    gradients = jnp.concatenate(dq, axis=2), _sum_prefixes(dk), _sum_prefixes(dv)
    inputs = q_BKQH, k_BKSH, v_BKSU
    return *(dx.astype(x.dtype) for dx, x in zip(gradients, inputs, strict=True)), None, None


def _sum_prefixes(parts: list[jax.Array]) -> jax.Array:
    """Return the sum of gradients over growing ranges of keys, `[B, K, S, H]`."""
    # In place: each part then touches only its own keys.
    *shorter, total = parts
    for part in reversed(shorter):
        total = total.at[:, :, : part.shape[2]].add(part)
    return total


_by_key.defvjp(_forward, _backward)
