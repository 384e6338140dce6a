"""Grouped-query attention. It reads a layer's position table and never a variant's name."""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from model import kernels
from model.config import ModelConfig
from model.layers import RMSNorm, linear, normal_param
from model.positions import PositionTable, for_heads, rotate


def query_scale(table: PositionTable, positions_BT: jax.Array) -> jax.Array:
    """Log-n scaling of a query at each position, float32 `[B, T, K]`; 1 where it is off."""
    log_position_BT1 = jnp.log(positions_BT.astype(jnp.float32) + 1)[..., None]
    return jnp.maximum(table.query_floor, table.query_slope * log_position_BT1)


def feature_scale(table: PositionTable) -> jax.Array:
    """What multiplies each feature's part of q·k, float32 `[K, H]`: pairs that stay have their own.

    Phi-4-mini rotates, and warms, three quarters of a head.
    """
    rotates_KR = (table.cycles_hi | table.cycles_lo) != 0
    scale_KR = jnp.where(
        rotates_KR, table.logit_scale[:, None], table.unrotated_logit_scale[:, None]
    )
    return jnp.tile(scale_KR, 2)


def shift_keys(
    k_BSKH: jax.Array,
    shift: nnx.Param,
    positions_BT: jax.Array,
    before_BKH: jax.Array | None = None,
) -> jax.Array:
    """Mixes into each key the previous token's, within the document.

    Args:
      k_BSKH: keys before rotation; the two that are mixed turn alike, as one key.
      shift: `[K]`; the previous token's share of a head's keys is its sigmoid.
      positions_BT: int32, place within the document: its first token has none before it.
      before_BKH: the key before the first of these, itself unmixed; None: rows start here.
    """
    if before_BKH is None:
        previous_BSKH = jnp.pad(k_BSKH, ((0, 0), (1, 0), (0, 0), (0, 0)))[:, :-1]
    else:
        previous_BSKH = jnp.concatenate([before_BKH[:, None], k_BSKH[:, :-1]], axis=1)
    previous_BSKH = jnp.where((positions_BT > 0)[:, :, None, None], previous_BSKH, 0)
    share_K1 = jax.nn.sigmoid(shift[...])[:, None].astype(k_BSKH.dtype)
    return (1 - share_K1) * k_BSKH + share_K1 * previous_BSKH


def attend(
    config: ModelConfig, q_BTNH, k_BSKH, v_BSKU, table: PositionTable, segment_ids_BT
) -> jax.Array:
    """What each query finds, `[B, T, N, U]`; queries come rotated and scaled."""
    q_BTNH, k_BSKH = checkpoint_name(q_BTNH, "query"), checkpoint_name(k_BSKH, "key")
    v_BSKU = checkpoint_name(v_BSKU, "value")
    with jax.named_scope("attention"):
        if config.masked_distances is not None:
            # No kernel knows of holes: a control is worth neither a mask in each of them nor speed.
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


def project(out_BTNU: jax.Array, weight: nnx.Param) -> jax.Array:
    """What the heads found, back in the residual stream: `[B, T, D]`, by a weight `[N, U, D]`."""
    N, U, D = weight.shape
    return linear(out_BTNU.reshape(*out_BTNU.shape[:2], N * U), weight[...].reshape(N * U, D))


class Attention(nnx.Module):
    """softmax(rotate(q) · rotate(k)) v, heads grouped over fewer keys (2305.13245)."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        D, N, K, H = config.embed_dim, config.num_heads, config.kv_heads, config.head_dim
        self.query = normal_param(rngs, (D, N, H), ("embed", "heads", None), fan_in=D)
        self.key = normal_param(rngs, (D, K, H), ("embed", "kv_heads", None), fan_in=D)
        self.value = normal_param(rngs, (D, K, H), ("embed", "kv_heads", None), fan_in=D)
        self.out = normal_param(
            rngs, (N, H, D), ("heads", None, "embed"), fan_in=2 * config.num_layers * N * H
        )
        if config.align_query_key:
            # Of the queries that share a key the first: k = q + noise needs one to start from.
            self.key = nnx.Param(self.query[:, :: N // K], axes=("embed", "kv_heads", None))
        if config.qkv_bias:
            self.query_bias = nnx.Param(jnp.zeros((N, H)), axes=("heads", None))
            self.key_bias = nnx.Param(jnp.zeros((K, H)), axes=("kv_heads", None))
            self.value_bias = nnx.Param(jnp.zeros((K, H)), axes=("kv_heads", None))
        if config.qk_norm:
            self.query_norm = RMSNorm(H, config.norm_epsilon)
            self.key_norm = RMSNorm(H, config.norm_epsilon)
        if config.shift_keys:
            self.shift = nnx.Param(jnp.zeros(K), axes=("kv_heads",))
        self.config = config

    def projected(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """As `unrotated`, of keys that are not mixed yet: what a token has of itself alone."""
        q_BTNH = linear(x_BTD, self.query[...])
        k_BSKH = linear(x_BTD, self.key[...])
        v_BSKH = linear(x_BTD, self.value[...])
        if self.config.qkv_bias:
            q_BTNH += self.query_bias[...].astype(q_BTNH.dtype)
            k_BSKH += self.key_bias[...].astype(k_BSKH.dtype)
            v_BSKH += self.value_bias[...].astype(v_BSKH.dtype)
        if self.config.qk_norm:
            q_BTNH, k_BSKH = self.query_norm(q_BTNH), self.key_norm(k_BSKH)
        return q_BTNH, k_BSKH, v_BSKH

    def unrotated(
        self, x_BTD: jax.Array, positions_BT: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values before rotation, `[B, T, N, H]` and `[B, S, K, H]` twice."""
        q_BTNH, k_BSKH, v_BSKH = self.projected(x_BTD)
        if self.config.shift_keys:
            k_BSKH = shift_keys(k_BSKH, self.shift, positions_BT)
        return q_BTNH, k_BSKH, v_BSKH

    def rotated_queries(
        self, q_BTNH: jax.Array, table: PositionTable, cos_sin, positions_BT: jax.Array
    ) -> jax.Array:
        """Float32 queries, rotated. All scales go into them, so that every kernel handles them."""
        scale_BTKH = query_scale(table, positions_BT)[..., None] * feature_scale(table)
        scale_BTKH /= math.sqrt(self.config.head_dim)
        return rotate(q_BTNH, *cos_sin) * for_heads(scale_BTKH, q_BTNH.shape[2])

    def __call__(
        self,
        x_BTD: jax.Array,
        table: PositionTable,
        cos_sin: tuple[jax.Array, jax.Array],
        positions_BT: jax.Array,
        segment_ids_BT: jax.Array,
    ) -> jax.Array:
        """Attends within documents.

        Args:
          x_BTD: normalized residual stream.
          table: this layer's row of the position table.
          cos_sin: cosines and sines of this layer, `[B, T, K, R]`.
          positions_BT: int32, place within the document.
          segment_ids_BT: int32, document of each token.

        Returns:
          `[B, T, D]`.
        """
        dtype = x_BTD.dtype
        q_BTNH, k_BSKH, v_BSKH = self.unrotated(x_BTD, positions_BT)
        with jax.named_scope("rope"):
            q_BTNH = self.rotated_queries(q_BTNH, table, cos_sin, positions_BT)
            k_BSKH = rotate(k_BSKH, *cos_sin)

        q_BTNH, k_BSKH = q_BTNH.astype(dtype), k_BSKH.astype(dtype)
        out_BTNH = attend(self.config, q_BTNH, k_BSKH, v_BSKH, table, segment_ids_BT)
        return project(out_BTNH, self.out)
