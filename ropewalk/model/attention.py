"""Grouped-query attention. It reads a layer's position table, never the name of a variant.

`rotate_queries` and `rotate_heads` are the one rotation of training, decoding and probes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from ropewalk.model import kernels
from ropewalk.model.config import Architecture, PositionTable
from ropewalk.model.layers import Norm, linear, normal_param, zeros_param
from ropewalk.model.positions import repeat_heads, rotate

# Queries `[B, T, N, H]`, keys `[B, S, K, H]`, and values `[B, S, K, U]` before rotation.
QueryKeyValue = tuple[jax.Array, jax.Array, jax.Array]


def query_scale(table: PositionTable, positions_BT: jax.Array) -> jax.Array:
    """Return the log-n scale of queries at these positions, float32 `[B, T, K]`; 1 if it is off."""
    log_position_BT1 = jnp.log(positions_BT.astype(jnp.float32) + 1)[..., None]
    return jnp.maximum(table.query_floor, table.query_slope * log_position_BT1)


def feature_scale(config: Architecture, table: PositionTable) -> jax.Array:
    """Return the scale of each feature's part of q·k, float32 `[K, H]`.

    Unrotated pairs have a scale of their own: Phi-4-mini rotates three quarters of a head, and its
    attention temperature applies to those only.
    """
    rotates_KR = (table.cycles_hi | table.cycles_lo) != 0
    unrotated_K1 = table.unrotated_logit_scale[:, None]
    scale_KH = jnp.tile(jnp.where(rotates_KR, table.logit_scale[:, None], unrotated_K1), 2)
    if num_first := config.head_dim - config.rope_head_dim:
        first = jnp.broadcast_to(unrotated_K1, (len(scale_KH), num_first))
        scale_KH = jnp.concatenate([first, scale_KH], axis=1)
    return scale_KH


def rotate_heads(config: Architecture, x_BTNH: jax.Array, cos_sin) -> jax.Array:
    """Return rotated queries or keys, float32; with MLA, unrotated features come first."""
    num_first = config.head_dim - config.rope_head_dim
    if num_first == 0:
        return rotate(x_BTNH, *cos_sin)
    first = x_BTNH[..., :num_first].astype(jnp.float32)
    return jnp.concatenate([first, rotate(x_BTNH[..., num_first:], *cos_sin)], axis=-1)


def rotate_queries(
    config: Architecture, q_BTNH: jax.Array, table: PositionTable, cos_sin, positions_BT: jax.Array
) -> jax.Array:
    """Return rotated queries times all logit scales, float32, so that kernels need no scale.

    With MLA all heads share the rotated key, so the table has one row for them (K = 1).
    """
    scale_BTKH = query_scale(table, positions_BT)[..., None] * feature_scale(config, table)
    scale_BTKH /= config.logit_divisor
    return rotate_heads(config, q_BTNH, cos_sin) * repeat_heads(scale_BTKH, q_BTNH.shape[2])


def order_by_pair(config: Architecture, x: jax.Array) -> jax.Array:
    """Reorder the features of queries or keys `[..., H]` so that pairs are i and i + H / 2.

    Pairs are then in the order of `PositionTable.inv_freq`: MLA's unrotated features come last.
    """
    first, rest = jnp.split(x, [config.head_dim - config.rope_head_dim], axis=-1)
    halves = zip(jnp.split(rest, 2, axis=-1), jnp.split(first, 2, axis=-1), strict=True)
    return jnp.concatenate([part for half in halves for part in half], axis=-1)


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


class Attention(nnx.Module):
    """softmax(rotate(q) · rotate(k)) v, heads grouped over fewer keys (2305.13245)."""

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        D, N, K, H = config.embed_dim, config.num_heads, config.kv_heads, config.value_dim
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
            self.query_norm = Norm(config, N * H if across else H)
            self.key_norm = Norm(config, K * H if across else H)
        if config.shift_keys:
            self.shift = zeros_param((K,), ("kv_heads",))
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

    def compute_qkv(self, x_BTD: jax.Array, positions_BT: jax.Array) -> QueryKeyValue:
        """Return queries, keys, and values before rotation."""
        q_BTNH, k_BSKH, v_BSKH = self.project_qkv(x_BTD)
        if self.config.shift_keys:
            k_BSKH = smear_keys(k_BSKH, self.shift, positions_BT)
        return q_BTNH, k_BSKH, v_BSKH

    def attend(
        self, q_k_v: QueryKeyValue, table: PositionTable, cos_sin, positions_BT, segment_ids_BT
    ) -> jax.Array:
        """Compute attention within documents.

        Args:
          q_k_v: results of `compute_qkv`.
          table: this layer's row of the position table.
          cos_sin: cosines and sines of this layer, `[B, T, K, R]`.
          positions_BT: int32, position within the document.
          segment_ids_BT: int32, document of each token.

        Returns:
          `[B, T, D]`.
        """
        q_BTNH, k_BSKH, v_BSKU = q_k_v
        config, dtype = self.config, v_BSKU.dtype
        with jax.named_scope("rope"):
            q_BTNH = rotate_queries(config, q_BTNH, table, cos_sin, positions_BT).astype(dtype)
            k_BSKH = rotate_heads(config, k_BSKH, cos_sin).astype(dtype)
        q_BTNH, k_BSKH = checkpoint_name(q_BTNH, "query"), checkpoint_name(k_BSKH, "key")
        v_BSKU = checkpoint_name(v_BSKU, "value")
        with jax.named_scope("attention"):
            inputs = q_BTNH, k_BSKH, v_BSKU, segment_ids_BT, table.window
            out_BTNU = kernels.attention(config, *inputs)
        return self.project(out_BTNU)

    def project(self, out_BTNU: jax.Array) -> jax.Array:
        """Project the heads' outputs to the residual stream, `[B, T, D]`."""
        N, U, D = self.out.shape
        weight, bias = self.out[...].reshape(N * U, D), getattr(self, "out_bias", None)
        return linear(out_BTNU.reshape(*out_BTNU.shape[:2], N * U), weight, bias)
