"""Attention on NVIDIA's Hopper GPUs: tokamax's Mosaic kernels (FlashAttention-3, 2407.08608).

For a causal row, documents and a traced window are one number for each query: its first key.
tokamax's public entry point takes a mask `[T, T]` instead and returns no log-sum-exp, so this file
calls the kernels behind it. They are private; `model.kernels.check` compares them before training.

The forward pass skips other documents and keys outside the window; the backward pass skips later
keys only. Documents must lie in one piece. The log-sum-exp has no gradient.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from tokamax._src.ops.attention import (  # pyright: ignore[reportMissingImports]
    pallas_mosaic_gpu_kernel_sm90 as forward_kernel,
)
from tokamax._src.ops.attention import (  # pyright: ignore[reportMissingImports]
    pallas_mosaic_gpu_vjp_kernel_sm90 as backward_kernel,
)

MAX_WIDTH = 128
DTYPES = ("bfloat16", "float16")
BLOCK = 128  # tokens that the two warp groups of a program take at once
_SETTINGS = dict(logits_scale=1.0, logits_soft_cap=None, is_causal=True)
_FORWARD = forward_kernel.Config(block_q=64, block_kv=128, num_stages=2, persistent=False)
_BACKWARD = backward_kernel.Config(
    block_q_dkv=64, block_kv_dkv=64, block_q_dq=64, block_kv_dq=64, num_stages=2
)


@jax.custom_vjp
def attention(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window) -> tuple[jax.Array, jax.Array]:
    """Compute `Choice.attend` of full rows on one device."""
    return _forward(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window)[0]


def first_keys(segment_ids_BT: jax.Array, window) -> jax.Array:
    """Return the index of the first key that each query attends to, int32 `[B, T]`."""
    indices_T = jnp.arange(segment_ids_BT.shape[1])
    starts_BT = segment_ids_BT[:, 1:] != segment_ids_BT[:, :-1]
    starts_BT = jnp.where(jnp.pad(starts_BT, ((0, 0), (1, 0))), indices_T, 0)
    return jnp.maximum(jax.lax.cummax(starts_BT, axis=1), indices_T - window + 1)


def _forward(q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window):
    T = q_BTNH.shape[1]
    q_BTNH, k_BSKH, v_BSKU = (_pad(x) for x in (q_BTNH, k_BSKH, v_BSKU))
    first_BT = first_keys(_pad(segment_ids_BT), window)

    def one_row(q_TNH, k_SKH, v_SKU, first_T):
        out_TNU, (top_NT, total_NT) = forward_kernel.flash_attention_kernel(
            q_TNH,
            k_SKH,
            v_SKU,
            bias=None,
            mask=None,
            k_start=first_T[None],
            k_end=None,
            out_dtype=q_TNH.dtype,
            normalize_output=True,
            return_residuals=True,
            use_stable_softmax=True,
            rescale_threshold=1.0,
            config=_FORWARD,
            **_SETTINGS,
        )
        return out_TNU, top_NT + jnp.log(total_NT)

    out_BTNU, lse_BNT = jax.vmap(one_row)(q_BTNH, k_BSKH, v_BSKU, first_BT)
    out_BTNU = checkpoint_name(out_BTNU, "attention_heads")
    lse_BNT = checkpoint_name(lse_BNT, "attention_lse")
    residuals = q_BTNH, k_BSKH, v_BSKU, first_BT, out_BTNU, lse_BNT
    return (out_BTNU[:, :T], jnp.moveaxis(lse_BNT, 1, 2)[:, :T]), residuals


def _backward(residuals, gradients):
    g_BTNU, _ = gradients

    def one_row(q_TNH, k_SKH, v_SKU, first_T, out_TNU, lse_NT, g_TNU):
        *dqkv, _ = backward_kernel.flash_attention_vjp_kernel(
            q_TNH,
            k_SKH,
            v_SKU,
            (lse_NT, jnp.ones_like(lse_NT)),
            out_TNU,
            g_TNU,
            bias=None,
            mask=None,
            k_start=first_T[None],
            k_end=None,
            ds_dtype=None,
            config=_BACKWARD,
            **_SETTINGS,
        )
        return dqkv

    T, dtype = g_BTNU.shape[1], residuals[4].dtype
    dqkv = jax.vmap(one_row)(*residuals, _pad(g_BTNU.astype(dtype)))
    return *(x[:, :T] for x in dqkv), None, None


attention.defvjp(_forward, _backward)


def _pad(x_BT: jax.Array) -> jax.Array:
    """Pad rows to full blocks. No token of the row attends to the padding, which comes later."""
    extra = -x_BT.shape[1] % BLOCK
    return jnp.pad(x_BT, [(0, extra if axis == 1 else 0) for axis in range(x_BT.ndim)])
