"""Attention over long rows in plain XLA, one block of queries and one block of keys at a time.

The softmax is computed online, and the backward pass recomputes the weights from each query's
log-sum-exp (FlashAttention, 2205.14135), so that no `[T, S]` array exists. Key blocks that no query
of a block attends to are skipped: later blocks, blocks outside the window, and other documents.

Additional shape letters: X query blocks, Y key blocks.
"""

import jax
import jax.numpy as jnp

from ropewalk.model.kernels import parts
from ropewalk.model.kernels.matmul import product
from ropewalk.model.kernels.parts import FORBIDDEN, Parts, Shard
from ropewalk.model.mask import attention_mask

# Tokens of a block: the largest of these for which a block's logits fit the cache of a CPU core.
BLOCK_LENGTHS = (512, 256, 128)
MAX_LOGITS = 2**19


def forward(
    q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window
) -> tuple[jax.Array, jax.Array]:
    """Compute attention of queries over some of their keys.

    Returns:
      The output, float32 `[B, T, N, U]`, and the log-sum-exp of each query's logits, float32
      `[B, T, N]`, which is close to `FORBIDDEN` for a query that attends to none of these keys.
    """
    T, K, U = q_BTNH.shape[1], k_BSKH.shape[2], v_BSKU.shape[3]
    length = _block_length(q_BTNH)
    q_XBKGTH = _by_group(q_BTNH, K, length)
    k_YBKSH, v_YBKSU = (_by_group(x, K, length)[:, :, :, 0] for x in (k_BSKH, v_BSKU))
    queries_X, keys_Y = parts.cut_queries(queries, length), parts.cut_keys(keys, length)

    def one_block(block):
        q_BKGTH, queries, first, end = block

        def add(y, carry):
            out_BKGTU, top_BKGT1, total_BKGT1 = carry
            k_BKSH, v_BKSU, keys = _at(y, (k_YBKSH, v_YBKSU, keys_Y))
            logits_BKGTS = _logits(q_BKGTH, k_BKSH, queries, keys, window)
            new_top_BKGT1 = jnp.maximum(top_BKGT1, logits_BKGTS.max(axis=-1, keepdims=True))
            weights_BKGTS = jnp.exp(logits_BKGTS - new_top_BKGT1)
            shrink_BKGT1 = jnp.exp(top_BKGT1 - new_top_BKGT1)
            total_BKGT1 = total_BKGT1 * shrink_BKGT1 + weights_BKGTS.sum(axis=-1, keepdims=True)
            weights_BKGTS = weights_BKGTS.astype(v_BSKU.dtype)
            out_BKGTU *= shrink_BKGT1
            out_BKGTU += product("BKGTS,BKSU->BKGTU", weights_BKGTS, v_BKSU)
            return out_BKGTU, new_top_BKGT1, total_BKGT1

        rows = q_BKGTH.shape[:-1]
        initial = jnp.zeros((*rows, U)), jnp.full((*rows, 1), FORBIDDEN), jnp.zeros((*rows, 1))
        out_BKGTU, top_BKGT1, total_BKGT1 = jax.lax.fori_loop(first, end, add, initial)
        total_BKGT1 = jnp.maximum(total_BKGT1, 1e-30)  # 0 where every block was skipped
        return out_BKGTU / total_BKGT1, top_BKGT1 + jnp.log(total_BKGT1)

    ranges_X = parts.block_ranges(parts.block_mask(queries_X, keys_Y, window))
    out_XBKGTU, lse_XBKGT1 = jax.lax.map(one_block, (q_XBKGTH, queries_X, *ranges_X))
    return _join(out_XBKGTU, T), _join(lse_XBKGT1, T)[..., 0]


def backward(
    q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window, lse_BTN, shift_BTN, g_BTNU
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the contribution of these keys to the gradients of q, k, and v, float32.

    Args:
      q_BTNH, k_BSKH, v_BSKU, queries, keys, window: see `forward`.
      lse_BTN: log-sum-exp over all keys that a query attends to, not only these.
      shift_BTN: see `Parts`.
      g_BTNU: gradient of the output.
    """
    T, S, K = q_BTNH.shape[1], k_BSKH.shape[1], k_BSKH.shape[2]
    length = _block_length(q_BTNH)
    k_YBKSH, v_YBKSU = (_by_group(x, K, length)[:, :, :, 0] for x in (k_BSKH, v_BSKU))
    by_query = (q_BTNH, g_BTNU, lse_BTN[..., None], shift_BTN[..., None])
    queries_X, keys_Y = parts.cut_queries(queries, length), parts.cut_keys(keys, length)

    def one_block(totals, block):
        (q_BKGTH, g_BKGTU, lse_BKGT1, shift_BKGT1), queries, first, end = block

        def add(y, carry):
            dq_BKGTH, dk_YBKSH, dv_YBKSU = carry
            k_BKSH, v_BKSU, keys = _at(y, (k_YBKSH, v_YBKSU, keys_Y))
            logits_BKGTS = _logits(q_BKGTH, k_BKSH, queries, keys, window)
            weights_BKGTS = jnp.exp(logits_BKGTS - lse_BKGT1)
            dweights_BKGTS = product("BKGTU,BKSU->BKGTS", g_BKGTU, v_BKSU)
            dlogits_BKGTS = weights_BKGTS * (dweights_BKGTS - shift_BKGT1)
            weights_BKGTS = weights_BKGTS.astype(g_BTNU.dtype)
            dlogits_BKGTS = dlogits_BKGTS.astype(q_BTNH.dtype)
            dq_BKGTH += product("BKGTS,BKSH->BKGTH", dlogits_BKGTS, k_BKSH)
            dk_BKSH = product("BKGTS,BKGTH->BKSH", dlogits_BKGTS, q_BKGTH)
            dv_BKSU = product("BKGTS,BKGTU->BKSU", weights_BKGTS, g_BKGTU)
            return dq_BKGTH, dk_YBKSH.at[y].add(dk_BKSH), dv_YBKSU.at[y].add(dv_BKSU)

        zero = jnp.zeros(q_BKGTH.shape, jnp.float32)
        dq_BKGTH, *totals = jax.lax.fori_loop(first, end, add, (zero, *totals))
        return tuple(totals), dq_BKGTH

    zeros = (jnp.zeros(k_YBKSH.shape, jnp.float32), jnp.zeros(v_YBKSU.shape, jnp.float32))
    by_query_X = tuple(_by_group(x, K, length) for x in by_query)
    ranges_X = parts.block_ranges(parts.block_mask(queries_X, keys_Y, window))
    blocks_X = by_query_X, queries_X, *ranges_X
    (dk_YBKSH, dv_YBKSU), dq_XBKGTH = jax.lax.scan(one_block, zeros, blocks_X)
    dk_BSKH, dv_BSKU = (_join(x[:, :, :, None], S) for x in (dk_YBKSH, dv_YBKSU))
    return _join(dq_XBKGTH, T), dk_BSKH, dv_BSKU


def _at(y, blocks):
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, y, 0, keepdims=False), blocks)


def _logits(q_BKGTH, k_BKSH, queries: Shard, keys: Shard, window) -> jax.Array:
    """Return the logits of one query block and one key block, `FORBIDDEN` where masked."""
    logits_BKGTS = product("BKGTH,BKSH->BKGTS", q_BKGTH, k_BKSH)
    mask_BTS = attention_mask(
        queries.indices_T, keys.indices_T, queries.segment_ids_BT, keys.segment_ids_BT, window
    )
    return jnp.where(mask_BTS[:, None, None], logits_BKGTS, FORBIDDEN)


def _block_length(q_BTNH) -> int:
    B, T, N, _ = q_BTNH.shape
    fitting = (length for length in BLOCK_LENGTHS if B * N * length**2 <= MAX_LOGITS)
    return min(T, next(fitting, BLOCK_LENGTHS[-1]))


def _by_group(x_BTNH, K: int, length: int):
    """Split `[B, T, N, H]` into blocks `[X, B, K, G, T, H]`, heads grouped by key head."""
    B, T, N, H = x_BTNH.shape
    return jnp.moveaxis(parts.cut(x_BTNH.reshape(B, T, K, N // K, H), 1, length), 2, 4)


def _join(x_XBKGTU, T: int):
    """Invert `_by_group`."""
    X, B, K, G, length, U = x_XBKGTU.shape
    return x_XBKGTU.transpose(1, 0, 4, 2, 3, 5).reshape(B, X * length, K * G, U)[:, :T]


PARTS = Parts(forward, backward)
