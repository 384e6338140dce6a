"""Grouped-query attention. It reads a layer's position table, never the name of a variant."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from model import kernels
from model.config import Architecture, PositionTable
from model.layers import linear, make_norm, normal_param, zeros_param
from model.positions import repeat_heads, rotate


def query_scale(table: PositionTable, positions_BT: jax.Array) -> jax.Array:
    """Return the log-n scale of queries at these positions, float32 `[B, T, K]`; 1 if it is off."""
    log_position_BT1 = jnp.log(positions_BT.astype(jnp.float32) + 1)[..., None]
    return jnp.maximum(table.query_floor, table.query_slope * log_position_BT1)


def feature_scale(table: PositionTable) -> jax.Array:
    """Return the scale of each feature's part of q·k, float32 `[K, H]`.

    Unrotated pairs have a scale of their own: Phi-4-mini rotates three quarters of a head, and its
    attention temperature applies to those only.
    """
    rotates_KR = (table.cycles_hi | table.cycles_lo) != 0
    scale_KR = jnp.where(
        rotates_KR, table.logit_scale[:, None], table.unrotated_logit_scale[:, None]
    )
    return jnp.tile(scale_KR, 2)


def smear_keys(
    k_BSKH: jax.Array,
    shift: nnx.Param,
    positions_BT: jax.Array,
    before_BKH: jax.Array | None = None,
) -> jax.Array:
    """Smear keys: mix into each key the previous token's key, within the document.

    Args:
      k_BSKH: keys before rotation. The mixed key rotates as one key, at its token's position.
      shift: `[K]`; its sigmoid is the previous token's share of a head's keys.
      positions_BT: int32, position within the document. The first token has no previous key.
      before_BKH: unsmeared key of the token before `k_BSKH`; None if rows start here.
    """
    if before_BKH is None:
        previous_BSKH = jnp.pad(k_BSKH, ((0, 0), (1, 0), (0, 0), (0, 0)))[:, :-1]
    else:
        previous_BSKH = jnp.concatenate([before_BKH[:, None], k_BSKH[:, :-1]], axis=1)
    previous_BSKH = jnp.where((positions_BT > 0)[:, :, None, None], previous_BSKH, 0)
    share_K1 = jax.nn.sigmoid(shift[...])[:, None].astype(k_BSKH.dtype)
    return (1 - share_K1) * k_BSKH + share_K1 * previous_BSKH


def attend(
    config: Architecture, q_BTNH, k_BSKH, v_BSKU, table: PositionTable, segment_ids_BT
) -> jax.Array:
    """Compute attention, `[B, T, N, U]`, of rotated and scaled queries."""
    q_BTNH, k_BSKH = checkpoint_name(q_BTNH, "query"), checkpoint_name(k_BSKH, "key")
    v_BSKU = checkpoint_name(v_BSKU, "value")
    with jax.named_scope("attention"):
        if config.masked_distances is not None:
            # A control needs no speed, so only the reference implements masked distances.
            return kernels.reference(
                q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, table.window, config.masked_distances
            ).astype(v_BSKU.dtype)
        return kernels.attention(
            q_BTNH,
            k_BSKH,
            v_BSKU,
            segment_ids_BT=segment_ids_BT,
            window=table.window,
            kernel=config.attention,
        )


def project(out_BTNU: jax.Array, attention: Any) -> jax.Array:
    """Project the heads' outputs to the residual stream, `[B, T, D]`, by `attention.out`."""
    N, U, D = attention.out.shape
    weight, bias = attention.out[...].reshape(N * U, D), getattr(attention, "out_bias", None)
    return linear(out_BTNU.reshape(*out_BTNU.shape[:2], N * U), weight, bias)


class Attention(nnx.Module):
    """softmax(rotate(q) · rotate(k)) v, heads grouped over fewer keys (2305.13245)."""

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        D, N, K, H = config.embed_dim, config.num_heads, config.kv_heads, config.head_dim
        self.query = normal_param(rngs, (D, N, H), ("embed", "heads", None), fan_in=D)
        self.key = normal_param(rngs, (D, K, H), ("embed", "kv_heads", None), fan_in=D)
        self.value = normal_param(rngs, (D, K, H), ("embed", "kv_heads", None), fan_in=D)
        self.out = normal_param(
            rngs, (N, H, D), ("heads", None, "embed"), fan_in=2 * config.num_layers * N * H
        )
        if config.align_query_key:
            # Start from the first of the queries that share a key: k = q + noise needs one query.
            self.key = nnx.Param(self.query[:, :: N // K], axes=("embed", "kv_heads", None))
        if config.qkv_bias:
            self.query_bias = zeros_param((N, H), ("heads", None))
            self.key_bias = zeros_param((K, H), ("kv_heads", None))
            self.value_bias = zeros_param((K, H), ("kv_heads", None))
        if config.out_bias:
            self.out_bias = zeros_param((D,), (None,))
        if config.qk_norm:
            across = config.qk_norm_across_heads
            self.query_norm = make_norm(config, N * H if across else H)
            self.key_norm = make_norm(config, K * H if across else H)
        if config.shift_keys:
            self.shift = zeros_param((K,), ("kv_heads",))
        if config.learned_frequencies:
            self.frequency_offset = zeros_param((K, H // 2), (None, None))
        self.config = config

    def project_qkv(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries, keys, and values before key smearing, each a function of one token."""
        q_BTNH, k_BSKH, v_BSKH = (
            linear(x_BTD, getattr(self, name)[...], getattr(self, f"{name}_bias", None))
            for name in ("query", "key", "value")
        )
        if self.config.qk_norm:
            q_BTNH, k_BSKH = self._norm(self.query_norm, q_BTNH), self._norm(self.key_norm, k_BSKH)
        return q_BTNH, k_BSKH, v_BSKH

    def _norm(self, norm: Any, x_BTNH: jax.Array) -> jax.Array:
        """Normalize the features of every head, or of all heads at once."""
        if not self.config.qk_norm_across_heads:
            return norm(x_BTNH)
        return norm(x_BTNH.reshape(*x_BTNH.shape[:2], -1)).reshape(x_BTNH.shape)

    def compute_qkv(
        self, x_BTD: jax.Array, positions_BT: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries `[B, T, N, H]`, keys, and values `[B, S, K, H]`, before rotation."""
        q_BTNH, k_BSKH, v_BSKH = self.project_qkv(x_BTD)
        if self.config.shift_keys:
            k_BSKH = smear_keys(k_BSKH, self.shift, positions_BT)
        return q_BTNH, k_BSKH, v_BSKH

    def rotate_queries(
        self, q_BTNH: jax.Array, table: PositionTable, cos_sin, positions_BT: jax.Array
    ) -> jax.Array:
        """Return rotated float32 queries, times all logit scales, so that kernels need no scale."""
        scale_BTKH = query_scale(table, positions_BT)[..., None] * feature_scale(table)
        scale_BTKH /= self.config.logit_divisor
        return rotate(q_BTNH, *cos_sin) * repeat_heads(scale_BTKH, q_BTNH.shape[2])

    def __call__(
        self,
        x_BTD: jax.Array,
        table: PositionTable,
        cos_sin: tuple[jax.Array, jax.Array],
        positions_BT: jax.Array,
        segment_ids_BT: jax.Array,
    ) -> jax.Array:
        """Compute attention within documents.

        Args:
          x_BTD: normalized residual stream.
          table: this layer's row of the position table.
          cos_sin: cosines and sines of this layer, `[B, T, K, R]`.
          positions_BT: int32, position within the document.
          segment_ids_BT: int32, document of each token.

        Returns:
          `[B, T, D]`.
        """
        dtype = x_BTD.dtype
        q_BTNH, k_BSKH, v_BSKH = self.compute_qkv(x_BTD, positions_BT)
        with jax.named_scope("rope"):
            q_BTNH = self.rotate_queries(q_BTNH, table, cos_sin, positions_BT)
            k_BSKH = rotate(k_BSKH, *cos_sin)

        q_BTNH, k_BSKH = q_BTNH.astype(dtype), k_BSKH.astype(dtype)
        out_BTNH = attend(self.config, q_BTNH, k_BSKH, v_BSKH, table, segment_ids_BT)
        return project(out_BTNH, self)
