"""Attention assembled from parts, each over some of the keys.

A part is a query's output over those keys and the log-sum-exp of its logits, which weights the part
relative to others. In the backward pass, a part's contribution to the gradients needs only the
log-sum-exp and the shift, a mean over all keys (FlashAttention, 2205.14135). `blocks`, `splash` and
`flash` compute parts, `ring` makes one part of several as keys arrive, and `attend` differentiates.

Additional shape letters: X query blocks, Y key blocks.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

# Value of a masked logit: its exponential is 0 next to any other, and differences stay finite.
FORBIDDEN = -1e30


class Shard(NamedTuple):
    """Queries or keys of a row, identified by all that the mask depends on.

    On one device a shard is the full row, in a ring the device's part, in a block the block.

    Attributes:
      indices_T: int32, index in the row, ascending, without a gap within each half.
      segment_ids_BT: int32, segment id of each token.
    """

    indices_T: jax.Array
    segment_ids_BT: jax.Array


class Parts(NamedTuple):
    """A kernel that computes parts.

    Attributes:
      forward: takes q, k, v, the `Shard`s of queries and keys, and the window. Returns the output
        over these keys, `[B, T, N, U]`, and the log-sum-exp of each query's logits, float32
        `[B, T, N]`, which is close to `FORBIDDEN` for a query that attends to none of them.
      backward: takes the same, the log-sum-exp over all keys that a query attends to, what
        softmax's gradient subtracts for each query (its shift, float32 `[B, T, N]`), and the
        gradient of the output. Returns the contribution to the gradients of q, k, and v, float32
        or in their dtypes.
    """

    forward: Callable
    backward: Callable


def attention(
    q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, *, parts: Parts
) -> tuple[jax.Array, jax.Array]:
    """Compute `Choice.attend` of full rows on one device."""
    shard = Shard(jnp.arange(q_BTNH.shape[1]), segment_ids_BT)
    return attend(parts, q_BTNH, k_BSKH, v_BSKU, shard, window)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
    parts: Parts, q_BTNH, k_BSKH, v_BSKU, shard: Shard, window
) -> tuple[jax.Array, jax.Array]:
    """Compute attention over all keys, and the log-sum-exp of each query's logits, `[B, T, N]`.

    Every query must attend at least to itself.
    """
    return _forward(parts, q_BTNH, k_BSKH, v_BSKU, shard, window)[0]


def _forward(parts, q_BTNH, k_BSKH, v_BSKU, shard, window):
    out_BTNU, lse_BTN = parts.forward(q_BTNH, k_BSKH, v_BSKU, shard, shard, window)
    out_BTNU = checkpoint_name(out_BTNU.astype(v_BSKU.dtype), "attention_heads")
    lse_BTN = checkpoint_name(lse_BTN, "attention_lse")
    return (out_BTNU, lse_BTN), (q_BTNH, k_BSKH, v_BSKU, shard, window, out_BTNU, lse_BTN)


def _backward(parts, residuals, gradients):
    (q_BTNH, k_BSKH, v_BSKU, shard, window, out_BTNU, lse_BTN), (g_BTNU, g_BTN) = (
        residuals,
        gradients,
    )
    shift_BTN = jnp.sum(out_BTNU.astype(jnp.float32) * g_BTNU.astype(jnp.float32), axis=-1)
    # The gradient of the log-sum-exp in a logit is the logit's weight.
    shift_BTN -= g_BTN
    inputs = q_BTNH, k_BSKH, v_BSKU
    gradients = parts.backward(*inputs, shard, shard, window, lse_BTN, shift_BTN, g_BTNU)
    # Shard and window have no gradient.
    return *(dx.astype(x.dtype) for dx, x in zip(gradients, inputs, strict=True)), None, None


attend.defvjp(_forward, _backward)


def cut(x, axis: int, length: int, **fill):
    """Split `axis` into blocks, `[X, ..., length, ...]`, and pad the last block."""
    x = jnp.pad(x, [(0, -n % length if i == axis else 0) for i, n in enumerate(x.shape)], **fill)
    x = x.reshape(*x.shape[:axis], -1, length, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)


def cut_queries(shard: Shard, length: int) -> Shard:
    """Split queries into blocks, `[X, T]` and `[X, B, T]`."""
    # The padding repeats the last query, so that it attends to no other blocks.
    return Shard(*(cut(x, axis, length, mode="edge") for axis, x in enumerate(shard)))


def cut_keys(shard: Shard, length: int) -> Shard:
    """Split keys into blocks, `[Y, S]` and `[Y, B, S]`."""
    # No query attends to a key that comes after all queries.
    indices_YS = cut(shard.indices_T, 0, length, constant_values=np.iinfo(np.int32).max)
    return Shard(indices_YS, cut(shard.segment_ids_BT, 1, length, mode="edge"))


def block_mask(queries_X: Shard, keys_Y: Shard, window) -> jax.Array:
    """Return which key blocks each query block may attend to, bool `[X, Y]`.

    A superset: ids between the smallest and the largest of a block count as present.
    """
    indices_XT, ids_XBT = queries_X
    key_indices_YS, key_ids_YBS = keys_Y
    distance_XY = indices_XT.max(-1)[:, None] - key_indices_YS.min(-1)  # of the farthest pair
    nearest_XY = indices_XT.min(-1)[:, None] - key_indices_YS.max(-1)
    near_XY = (distance_XY >= 0) & (nearest_XY < window)
    same_XYB = (key_ids_YBS.min(-1) <= ids_XBT.max(-1)[:, None]) & (
        key_ids_YBS.max(-1) >= ids_XBT.min(-1)[:, None]
    )
    return near_XY & same_XYB.any(axis=-1)


def block_ranges(block_mask_XY: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the first and the end of the range of key blocks of each query block, int32 `[X]`."""
    Y = block_mask_XY.shape[1]
    end_X = jnp.max(jnp.where(block_mask_XY, jnp.arange(1, Y + 1), 0), axis=1)
    return jnp.min(jnp.where(block_mask_XY, jnp.arange(Y), end_X[:, None]), axis=1), end_X
