"""Attention on a TPU: JAX's Pallas splash attention.

JAX's public entry points take the mask as a constant of the program, and do not return the
log-sum-exp that parts need. Here the mask is known only at run time: windows differ by member and
layer, documents by row, shards by device. So this file calls the functions behind those entry
points. They are private and may change with any version of JAX; `model.kernels.check` detects that
before training.

Additional shape letters: X query blocks, Y key blocks.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    BlockSizes,
    SegmentIds,
    splash_attention_kernel,
)
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import MaskInfo

from ropewalk.model.kernels import parts
from ropewalk.model.kernels.parts import FORBIDDEN, Parts, Shard

BLOCK = 512

# Maximum tokens of a device: the first and the last key of a query share the 32 bits that the
# kernel passes to the mask function.
MAX_LENGTH = 2**16

# Tests without a TPU set True, which runs the kernels as plain XLA.
INTERPRET = False


def _forward(q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window):
    T = q_BTNH.shape[1]
    block, block_mask_XY, codes_T, ids = _masks(queries, keys, window)
    mask = _mask_info(block_mask_XY, codes_T, axis=1)

    def one_row(*row):
        out_NTU, (lse_NT,) = splash_attention_kernel._splash_attention_forward(
            mask,
            *row,
            sinks=None,
            block_sizes=BlockSizes(block_q=block, block_kv=block),
            residual_checkpoint_name=None,
            save_residuals=True,
            **_settings(),
        )
        return out_NTU, lse_NT

    by_head = (_heads_first(x, block) for x in (q_BTNH, k_BSKH, v_BSKU))
    out_BNTU, lse_BNT = jax.vmap(one_row)(*by_head, ids)
    out_BTNU, lse_BTN = (jnp.moveaxis(x, 1, 2)[:, :T] for x in (out_BNTU, lse_BNT))
    # A query without a key block results in 0 / 0.
    lse_BTN = jnp.maximum(lse_BTN, FORBIDDEN)
    return jnp.where(lse_BTN[..., None] > FORBIDDEN, out_BTNU, 0), lse_BTN


def _backward(
    q_BTNH, k_BSKH, v_BSKU, queries: Shard, keys: Shard, window, lse_BTN, shift_BTN, g_BTNU
):
    T, S = q_BTNH.shape[1], k_BSKH.shape[1]
    block, block_mask_XY, codes_T, ids = _masks(queries, keys, window)
    by_query, by_key = (_mask_info(block_mask_XY, codes_T, axis) for axis in (1, 0))
    layout = splash_attention_kernel.QKVLayout.HEAD_DIM_MINOR
    settings = {**_settings(), "sinks": None, "bq": block, "bkv": block}
    settings |= dict.fromkeys(("q_layout", "k_layout", "v_layout"), layout)

    def one_row(q_NTH, k_KSH, v_KSU, ids, lse_NT, g_NTU, shift_NT):
        row = {"segment_ids": ids, "logsumexp": lse_NT, "do": g_NTU, "di": shift_NT}
        dq_NTH = splash_attention_kernel._splash_attention_bwd_dq(
            q_NTH, k_KSH, v_KSU, **row, mask_info=by_query, **settings
        )
        _, dk_KSH, dv_KSU = splash_attention_kernel._splash_attention_bwd_dkv(
            q_NTH,
            k_KSH,
            v_KSU,
            **row,
            mask_info=by_key,
            bkv_compute=block,
            use_fused_bwd_kernel=False,
            **settings,
        )
        return dq_NTH, dk_KSH, dv_KSU

    # The padded queries have no gradient of the output, so they add nothing.
    q_BNTH, k_BKSH, v_BKSU, lse_BNT, g_BNTU, shift_BNT = (
        _heads_first(x, block) for x in (q_BTNH, k_BSKH, v_BSKU, lse_BTN, g_BTNU, shift_BTN)
    )
    gradients = jax.vmap(one_row)(q_BNTH, k_BKSH, v_BKSU, ids, lse_BNT, g_BNTU, shift_BNT)
    dq_BTNH, dk_BSKH, dv_BSKU = (jnp.moveaxis(x, 1, 2) for x in gradients)
    return dq_BTNH[:, :T], dk_BSKH[:, :S], dv_BSKU[:, :S]


PARTS = Parts(_forward, _backward)
attention = functools.partial(parts.attention, parts=PARTS)  # for rows up to `MAX_LENGTH`


def _settings() -> dict[str, Any]:
    """Return the settings that all three kernels share."""
    return {
        "is_mqa": False,
        "mask_value": splash_attention_kernel.DEFAULT_MASK_VALUE,
        "attn_logits_soft_cap": None,
        "mask_function": _near,
        "interpret": INTERPRET,
    }


def _masks(queries: Shard, keys: Shard, window) -> tuple[int, jax.Array, jax.Array, SegmentIds]:
    """Return the block length, the block mask, the codes of queries, and the segment ids."""
    T = queries.indices_T.shape[0]
    block = min(BLOCK, -(-T // 128) * 128)
    queries_X, keys_Y = parts.cut_queries(queries, block), parts.cut_keys(keys, block)
    codes_T = _codes(queries_X.indices_T.reshape(-1), keys.indices_T, window)
    ids = (jnp.moveaxis(x.segment_ids_BT, 1, 0) for x in (queries_X, keys_Y))
    ids = SegmentIds(*(x.reshape(x.shape[0], -1) for x in ids))
    return block, parts.block_mask(queries_X, keys_Y, window), codes_T, ids


def _codes(indices_T: jax.Array, key_indices_S: jax.Array, window) -> jax.Array:
    """Return the first key within each query's window, and the last one in the upper 16 bits.

    For a query without a key these are 1 and 0.
    """
    S = key_indices_S.shape[0]
    half = S // 2

    def keys_before(indices_T):
        """Count the keys before these indices; keys are two halves without a gap."""
        first = jnp.clip(indices_T - key_indices_S[0], 0, half)
        return first + jnp.clip(indices_T - key_indices_S[half], 0, S - half)

    first_T = keys_before(jnp.maximum(indices_T - window + 1, 0))
    end_T = keys_before(indices_T + 1)
    return jnp.where(first_T < end_T, first_T | (end_T - 1) << 16, 1)


def _near(codes: jax.Array, keys: jax.Array) -> jax.Array:
    """Return whether a key is within the window of a query with this code (`_codes`)."""
    return (keys >= codes & 0xFFFF) & (keys <= (codes >> 16) & 0xFFFF)


def _mask_info(block_mask_XY: jax.Array, codes_T: jax.Array, axis: int) -> MaskInfo:
    """Return the blocks of a kernel that iterates over `axis` and prefetches the next block."""
    size = block_mask_XY.shape[axis]
    index_XY = jax.lax.broadcasted_iota(jnp.int32, block_mask_XY.shape, axis)
    next_XY = (
        jax.lax.cummin(jnp.where(block_mask_XY, index_XY, size), axis=axis, reverse=True) % size
    )
    return MaskInfo(
        data_next=next_XY[None],
        mask_next=None,
        block_mask=block_mask_XY[None].astype(jnp.int32),
        partial_mask_blocks=None,
        q_sequence=codes_T,  # pyright: ignore[reportArgumentType]
    )


def _heads_first(x_BTNH: jax.Array, block: int) -> jax.Array:
    """Return `[B, N, T, ...]`, with T padded to a multiple of `block`."""
    padding = [(0, -n % block if axis == 1 else 0) for axis, n in enumerate(x_BTNH.shape)]
    return jnp.moveaxis(jnp.pad(x_BTNH, padding), 1, 2)
