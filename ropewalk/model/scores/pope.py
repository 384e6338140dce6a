"""PoPE, polar coordinate position embedding (Gopalakrishnan et al. 2025, arXiv 2509.10534)."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ropewalk.model.attention import Attention, QueryKeyValue
from ropewalk.model.config import Architecture
from ropewalk.model.layers import zeros_param


class PolarAttention(Attention):
    """sum over features c of softplus(q_c) softplus(k_c) cos((s - t) inv_freq_c + phase_c).

    Content sets magnitudes only, and distance sets phases only. A projected feature becomes a pair
    of one angle, so `head_dim` is twice the projected width, and a head has a frequency for each
    projected feature: `base ** (-c / projected width)`. The phase is learned per key head and
    feature, starts at 0, and is clamped to [-2 pi, 0]; it belongs to keys.
    """

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.phase = zeros_param((config.kv_heads, config.value_dim), ("kv_heads", None))

    def compute_qkv(self, x_BTD: jax.Array, positions_BT: jax.Array) -> QueryKeyValue:
        """Return queries and keys of float32 pairs (i, i + H / 2), and values, before rotation."""
        q_BTNR, k_BSKR, v_BSKR = super().compute_qkv(x_BTD, positions_BT)
        phase_KR = jnp.clip(self.phase[...], -2 * np.pi, 0)
        return to_pairs(q_BTNR, 0.0), to_pairs(k_BSKR, phase_KR), v_BSKR


def to_pairs(x_BTNR: jax.Array, phase: jax.Array | float) -> jax.Array:
    """Return pairs of magnitude softplus(x) and angle `phase`, float32 `[B, T, N, 2 R]`."""
    magnitude_BTNR = jax.nn.softplus(x_BTNR.astype(jnp.float32))
    return jnp.concatenate(
        [magnitude_BTNR * jnp.cos(phase), magnitude_BTNR * jnp.sin(phase)], axis=-1
    )
