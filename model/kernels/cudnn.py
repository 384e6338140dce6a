"""Attention on an NVIDIA GPU: cuDNN, through `jax.nn.dot_product_attention`."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

# Entries of the mask that a device may hold: 2 GiB in bfloat16, and its gradient again as much.
MAX_MASK = 2**30

# "xla" in tests, where there is no GPU.
IMPLEMENTATION: Literal["cudnn", "xla"] = "cudnn"


@jax.custom_vjp
def attention(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> jax.Array:
    """As `model.kernels.attention`, for bfloat16 or float16 and heads of at most 256.

    What JAX passes on to cuDNN besides "causal" is one length a row, a window that is a constant
    of the program, or a mask. Documents and windows that are arrays need the mask, `[B, 1, T, T]`.
    Keys and values must be equally wide: narrower values (MLA) are filled up with zeros.
    """
    return _in_turn(_attend)(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)


# Under `vmap` (members of a sweep) one after another: JAX's rule for cuDNN merges members and rows
# but leaves a mask that all members share as it is, and the two no longer fit.
_in_turn: Callable[[Callable], Callable] = jax.custom_batching.sequential_vmap


def _attend(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window):
    T, H, U = q_BTNH.shape[1], q_BTNH.shape[3], v_BSKU.shape[3]
    # cuDNN's gradient wants rows of even length.
    q_BTNH, k_BSKH, v_BSKU = (
        jnp.pad(x, ((0, 0), (0, T % 2), (0, 0), (0, H - x.shape[3])))
        for x in (q_BTNH, k_BSKH, v_BSKU)
    )
    segment_ids_BT = jnp.pad(segment_ids_BT, ((0, 0), (0, T % 2)), constant_values=-1)
    indices_T = jnp.arange(T + T % 2)
    near_TS = indices_T[:, None] - indices_T < window
    same_BTS = segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]
    out_BTNH = jax.nn.dot_product_attention(
        q_BTNH,
        k_BSKH,
        v_BSKU,
        mask=(near_TS & same_BTS)[:, None],
        scale=1.0,
        is_causal=True,
        implementation=IMPLEMENTATION,
    )
    return out_BTNH[:, :T, :, :U]


def _gradients(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, g_BTNU):
    def attend(q_BTNH, k_BSKH, v_BSKU):
        return _attend(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)

    return jax.vjp(attend, q_BTNH, k_BSKH, v_BSKU)[1](g_BTNU)


def _forward(*inputs):
    return _in_turn(_attend)(*inputs), inputs


def _backward(inputs, g_BTNU):
    return *_in_turn(_gradients)(*inputs, g_BTNU), None, None


attention.defvjp(_forward, _backward)
