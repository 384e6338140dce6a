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


class Place(NamedTuple):
    """Where tokens stand, which is all that decides who sees whom.

    Attributes:
      rows_T: int32, index in the row; ascending, and without a gap within either half.
      segment_ids_BT: int32, document.
    """

    rows_T: jax.Array
    segment_ids_BT: jax.Array


class Parts(NamedTuple):
    """A kernel that computes parts.

    Attributes:
      forward: of q, k, v, the queries' and the keys' `Place`, and window. Returns the output over
        these keys, `[B, T, N, U]`, and the log of each query's summed exponentials, float32
        `[B, T, N]`, which lies near `FORBIDDEN` for a query that sees none of them.
      backward: of the same, the log over all keys that a query sees, `row_shift`, and the
        gradient of the output. Returns what these keys add to the gradients of q, k and v.
    """

    forward: Callable
    backward: Callable


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(parts: Parts, q_BTNH, k_BSKH, v_BSKU, place: Place, window) -> jax.Array:
    """As `model.kernels.attention`; every query must see at least itself."""
    return _forward(parts, q_BTNH, k_BSKH, v_BSKU, place, window)[0]


def _forward(parts, q_BTNH, k_BSKH, v_BSKU, place, window):
    out_BTNU, lse_BTN = parts.forward(q_BTNH, k_BSKH, v_BSKU, place, place, window)
    out_BTNU = out_BTNU.astype(v_BSKU.dtype)
    return out_BTNU, (q_BTNH, k_BSKH, v_BSKU, place, window, out_BTNU, lse_BTN)


def _backward(parts, residuals, g_BTNU):
    q_BTNH, k_BSKH, v_BSKU, place, window, out_BTNU, lse_BTN = residuals
    shift_BTN = row_shift(out_BTNU, g_BTNU)
    dq_BTNH, dk_BSKH, dv_BSKU = parts.backward(
        q_BTNH, k_BSKH, v_BSKU, place, place, window, lse_BTN, shift_BTN, g_BTNU
    )
    return (
        dq_BTNH.astype(q_BTNH.dtype),
        dk_BSKH.astype(k_BSKH.dtype),
        dv_BSKU.astype(v_BSKU.dtype),
        None,
        None,
    )


attention.defvjp(_forward, _backward)


def row_shift(out_BTNU: jax.Array, g_BTNU: jax.Array) -> jax.Array:
    """What softmax's gradient takes off every logit's of a query: the mean under its weights."""
    return jnp.sum(out_BTNU.astype(jnp.float32) * g_BTNU.astype(jnp.float32), axis=-1)


def cut(x, axis: int, length: int, **fill):
    """Cuts `axis` into blocks, `[X, ..., length, ...]`, filling up the last one."""
    x = jnp.pad(x, [(0, -n % length if i == axis else 0) for i, n in enumerate(x.shape)], **fill)
    x = x.reshape(*x.shape[:axis], -1, length, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)


def cut_queries(place: Place, length: int) -> Place:
    """Blocks of queries, `[X, T]` and `[X, B, T]`."""
    # What fills up a block repeats its last query, so that it sees no more than that one.
    return Place(*(cut(x, axis, length, mode="edge") for axis, x in enumerate(place)))


def cut_keys(place: Place, length: int) -> Place:
    """Blocks of keys, `[Y, S]` and `[Y, B, S]`."""
    # A key after all queries is seen by none.
    rows_YS = cut(place.rows_T, 0, length, constant_values=np.iinfo(np.int32).max)
    return Place(rows_YS, cut(place.segment_ids_BT, 1, length, mode="edge"))


def seen(queries_X: Place, keys_Y: Place, window) -> jax.Array:
    """Which blocks of keys a block of queries may see anything of, bool `[X, Y]`."""
    rows_XT, ids_XBT = queries_X
    key_rows_YS, key_ids_YBS = keys_Y
    distance_XY = rows_XT.max(-1)[:, None] - key_rows_YS.min(-1)  # of the farthest pair
    nearest_XY = rows_XT.min(-1)[:, None] - key_rows_YS.max(-1)
    near_XY = (distance_XY >= 0) & (nearest_XY < window)
    same_XYB = (key_ids_YBS.min(-1) <= ids_XBT.max(-1)[:, None]) & (
        key_ids_YBS.max(-1) >= ids_XBT.min(-1)[:, None]
    )
    return near_XY & same_XYB.any(axis=-1)
