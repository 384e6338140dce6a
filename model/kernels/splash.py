"""Attention on a TPU: JAX's Pallas splash attention."""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    BlockSizes,
    CausalMask,
    MultiHeadMask,
    SegmentIds,
    make_splash_mha_single_device,
)
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    SplashAttentionKernel,
)

BLOCK = 512

# Longest row: a query's index and its window share the 32 bits that the kernel carries of it.
MAX_LENGTH = 2**16


def attention(
    q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window, *, interpret: bool = False
) -> jax.Array:
    """As `model.kernels.attention`, for rows up to `MAX_LENGTH`.

    Splash attention takes its mask as a constant of the program, but windows are arrays here:
    members of a sweep and layers differ in theirs. The causal mask is the constant, and decides
    which blocks are skipped; the window goes in with each query's index, the one array that the
    kernel's mask function sees, and masks within blocks. So a window saves no time on a TPU.

    Args:
      q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, window: as there.
      interpret: run the kernel as plain XLA, on any device.
    """
    T, N = q_BTNH.shape[1:3]
    block = min(BLOCK, -(-T // 128) * 128)
    length = -(-T // block) * block

    def pad(x_BT):  # what is added comes after all queries, so that none of them sees it
        return jnp.pad(x_BT, [(0, length - T if i == 1 else 0) for i in range(x_BT.ndim)])

    kernel = _kernel(length, N, block, interpret)
    reach = jnp.clip(window - 1, 0, MAX_LENGTH - 1)
    codes_T = jnp.arange(length, dtype=jnp.int32) | (reach << 16)
    infos, settings = kernel.tree_flatten()
    kernel = SplashAttentionKernel(
        *(info._replace(q_sequence=codes_T) for info in infos if info is not None),
        **{**settings, "mask_function": _near},
    )
    q_BNTH, k_BKSH, v_BKSU = (jnp.moveaxis(pad(x), 1, 2) for x in (q_BTNH, k_BSKH, v_BSKU))
    ids_BT = pad(segment_ids_BT)
    out_BNTU = jax.vmap(kernel)(q_BNTH, k_BKSH, v_BKSU, SegmentIds(ids_BT, ids_BT))
    assert isinstance(out_BNTU, jax.Array)  # and no residuals
    return jnp.moveaxis(out_BNTU, 1, 2)[:, :T].astype(v_BSKU.dtype)


def _near(codes: jax.Array, keys: jax.Array) -> jax.Array:
    """Whether a query, its code as above, may see a key that far away."""
    distance = (codes & 0xFFFF) - keys
    return (distance >= 0) & (distance <= ((codes >> 16) & 0xFFFF))


def _kernel(length: int, num_heads: int, block: int, interpret: bool) -> SplashAttentionKernel:
    sizes = BlockSizes(
        block_q=block,
        block_kv=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    mask = MultiHeadMask([CausalMask((length, length))] * num_heads)
    return make_splash_mha_single_device(mask=mask, block_sizes=sizes, interpret=interpret)
