"""Attention on an NVIDIA GPU: cuDNN, through `jax.nn.dot_product_attention`."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from model.mask import attention_mask

# Maximum entries of the mask on a device: 2 GiB in bfloat16, and as much again for its gradient.
MAX_MASK = 2**30

# Tests without a GPU set "xla".
IMPLEMENTATION: Literal["cudnn", "xla"] = "cudnn"


@jax.custom_vjp
def attention(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> jax.Array:
    """Compute `model.kernels.attention` for bfloat16 or float16 and head sizes up to 256.

    JAX passes to cuDNN a causal flag, one length per row, and either a window that is a constant of
    the program or a mask. Documents and traced windows need the mask, `[B, 1, T, T]`.
    cuDNN needs keys and values of equal width, so narrower values (MLA) are padded with zeros.
    """
    return _sequential(_attend)(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)


# Under `vmap`, members of a sweep run one after another: JAX's batching rule for cuDNN merges
# members and rows, but does not repeat a mask that all members share, so the shapes differ.
_sequential: Callable[[Callable], Callable] = jax.custom_batching.sequential_vmap


def _attend(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window):
    T, H, U = q_BTNH.shape[1], q_BTNH.shape[3], v_BSKU.shape[3]
    # cuDNN's gradient needs rows of even length.
    q_BTNH, k_BSKH, v_BSKU = (
        jnp.pad(x, ((0, 0), (0, T % 2), (0, 0), (0, H - x.shape[3])))
        for x in (q_BTNH, k_BSKH, v_BSKU)
    )
    segment_ids_BT = jnp.pad(segment_ids_BT, ((0, 0), (0, T % 2)), constant_values=-1)
    indices_T = jnp.arange(T + T % 2)
    mask_BTS = attention_mask(indices_T, indices_T, segment_ids_BT, segment_ids_BT, window)
    out_BTNH = jax.nn.dot_product_attention(
        q_BTNH,
        k_BSKH,
        v_BSKU,
        mask=mask_BTS[:, None],
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
    return _sequential(_attend)(*inputs), inputs


def _backward(inputs, g_BTNU):
    return *_sequential(_gradients)(*inputs, g_BTNU), None, None


attention.defvjp(_forward, _backward)
