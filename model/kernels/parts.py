"""Attention put together from parts: queries over some of their keys, and then over others.

A query's part is its output over those keys and the log of its summed exponentials, which weighs
the part against others; backwards, what each part adds to the gradients needs only that log and
the mean (`row_shift`) over all keys (2205.14135). `blocks` and `splash` compute parts, `ring` adds
them up as keys arrive, and `attention` here is the case of one part.

Letters beside those of `model`: X blocks of queries, Y blocks of keys.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# What a forbidden logit becomes: exp of it is 0 beside any other, and differences stay finite.
FORBIDDEN = -1e30


class Shard(NamedTuple):
    """Which tokens of a row these are, which is all that decides who sees whom.

    Of queries or of keys; on one device the whole row, in a ring a device's own, in a block its.

    Attributes:
      indices_T: int32, index in the row; ascending, and without a gap within either half.
      segment_ids_BT: int32, document.
    """

    indices_T: jax.Array
    segment_ids_BT: jax.Array


class Parts(NamedTuple):
    """A kernel that computes parts.

    Attributes:
      forward: of q, k, v, the queries' and the keys' `Shard`, and window. Returns the output over
        these keys, `[B, T, N, U]`, and the log of each query's summed exponentials, float32
        `[B, T, N]`, which lies near `FORBIDDEN` for a query that sees none of them.
      backward: of the same, the log over all keys that a query sees, `row_shift`, and the
        gradient of the output. Returns what these keys add to the gradients of q, k and v.
    """

    forward: Callable
    backward: Callable


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(parts: Parts, q_BTNH, k_BSKH, v_BSKU, shard: Shard, window) -> jax.Array:
    """As `model.kernels.attention`; every query must see at least itself."""
    return _forward(parts, q_BTNH, k_BSKH, v_BSKU, shard, window)[0]


def _forward(parts, q_BTNH, k_BSKH, v_BSKU, shard, window):
    out_BTNU, lse_BTN = parts.forward(q_BTNH, k_BSKH, v_BSKU, shard, shard, window)
    out_BTNU = out_BTNU.astype(v_BSKU.dtype)
    return out_BTNU, (q_BTNH, k_BSKH, v_BSKU, shard, window, out_BTNU, lse_BTN)


def _backward(parts, residuals, g_BTNU):
    q_BTNH, k_BSKH, v_BSKU, shard, window, out_BTNU, lse_BTN = residuals
    shift_BTN = row_shift(out_BTNU, g_BTNU)
    gradients = parts.backward(
        q_BTNH, k_BSKH, v_BSKU, shard, shard, window, lse_BTN, shift_BTN, g_BTNU
    )
    return cast_gradients(gradients, (q_BTNH, k_BSKH, v_BSKU))


attention.defvjp(_forward, _backward)


def cast_gradients(gradients, inputs) -> tuple:
    """Gradients of q, k and v in their dtypes; a shard and a window have none."""
    return *(dx.astype(x.dtype) for dx, x in zip(gradients, inputs, strict=True)), None, None


def row_shift(out_BTNU: jax.Array, g_BTNU: jax.Array) -> jax.Array:
    """What softmax's gradient takes off every logit's of a query: the mean under its weights."""
    return jnp.sum(out_BTNU.astype(jnp.float32) * g_BTNU.astype(jnp.float32), axis=-1)


def cut(x, axis: int, length: int, **fill):
    """Cuts `axis` into blocks, `[X, ..., length, ...]`, filling up the last one."""
    x = jnp.pad(x, [(0, -n % length if i == axis else 0) for i, n in enumerate(x.shape)], **fill)
    x = x.reshape(*x.shape[:axis], -1, length, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)


def cut_queries(shard: Shard, length: int) -> Shard:
    """Blocks of queries, `[X, T]` and `[X, B, T]`."""
    # What fills up a block repeats its last query, so that it sees no more than that one.
    return Shard(*(cut(x, axis, length, mode="edge") for axis, x in enumerate(shard)))


def cut_keys(shard: Shard, length: int) -> Shard:
    """Blocks of keys, `[Y, S]` and `[Y, B, S]`."""
    # A key after all queries is seen by none.
    indices_YS = cut(shard.indices_T, 0, length, constant_values=np.iinfo(np.int32).max)
    return Shard(indices_YS, cut(shard.segment_ids_BT, 1, length, mode="edge"))


def block_mask(queries_X: Shard, keys_Y: Shard, window) -> jax.Array:
    """Of which blocks of keys a block of queries may see anything, bool `[X, Y]`."""
    indices_XT, ids_XBT = queries_X
    key_indices_YS, key_ids_YBS = keys_Y
    distance_XY = indices_XT.max(-1)[:, None] - key_indices_YS.min(-1)  # of the farthest pair
    nearest_XY = indices_XT.min(-1)[:, None] - key_indices_YS.max(-1)
    near_XY = (distance_XY >= 0) & (nearest_XY < window)
    same_XYB = (key_ids_YBS.min(-1) <= ids_XBT.max(-1)[:, None]) & (
        key_ids_YBS.max(-1) >= ids_XBT.min(-1)[:, None]
    )
    return near_XY & same_XYB.any(axis=-1)
