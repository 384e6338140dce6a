"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, Section 2.1).

Keys and values are projections of one narrow latent. Only a part of each head is rotated; all heads
share the key of that part.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from model.attention import attend, project, query_scale, smear_keys
from model.config import Architecture, PositionTable
from model.layers import linear, make_norm, normal_param, zeros_param
from model.positions import rotate


class LatentAttention(nnx.Module):
    """softmax(q_nope · k_nope + rotate(q_rope) · rotate(k_rope)) v, through latents.

    Additional shape letters: A is q_lora_rank, C kv_lora_rank, H qk_nope_head_dim,
    P qk_rope_head_dim, U v_head_dim.
    """

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        mla = config.mla
        assert mla is not None
        D, N, A, C = config.embed_dim, config.num_heads, mla.q_lora_rank, mla.kv_lora_rank
        H, P, U = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
        if A is None:
            self.query = normal_param(rngs, (D, N, H + P), ("embed", "heads", None), fan_in=D)
        else:
            self.query_down = normal_param(rngs, (D, A), ("embed", None), fan_in=D)
            self.query_latent_norm = make_norm(config, A)
            self.query_up = normal_param(rngs, (A, N, H + P), (None, "heads", None), fan_in=A)
        self.latent_down = normal_param(rngs, (D, C), ("embed", None), fan_in=D)
        self.latent_norm = make_norm(config, C)
        self.key_rope = normal_param(rngs, (D, P), ("embed", None), fan_in=D)
        self.key_up = normal_param(rngs, (C, N, H), (None, "heads", None), fan_in=C)
        self.value_up = normal_param(rngs, (C, N, U), (None, "heads", None), fan_in=C)
        self.out = normal_param(
            rngs, (N, U, D), ("heads", None, "embed"), fan_in=2 * config.num_layers * N * U
        )
        if config.align_query_key:
            # Leave out the latent's norm: it scales all features of a key alike.
            nope_DNH = jnp.einsum("DC,CNH->DNH", self.latent_down[...], self.key_up[...])
            rope_DNP = jnp.broadcast_to(self.key_rope[...][:, None], (D, N, P))
            query_DNX = jnp.concatenate([nope_DNH, rope_DNP], axis=-1)
            self.query = nnx.Param(query_DNX, axes=("embed", "heads", None))
        if config.shift_keys:
            self.shift = zeros_param((N,), ("heads",))
            self.shift_rope = zeros_param((1,), (None,))
        if config.learned_frequencies:  # one vector: all heads share the rotated key
            self.frequency_offset = zeros_param((1, config.rope_head_dim // 2), (None, None))
        self.config = config

    def project_qkv(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries `[B, T, N, H + P]`, the latent, and the shared key `[B, S, 1, P]`.

        The unrotated part of queries comes first. Nothing is rotated or smeared yet.
        """
        mla = self.config.mla
        assert mla is not None
        if mla.q_lora_rank is None:
            q_BTNX = linear(x_BTD, self.query[...])
        else:
            latent_BTA = self.query_latent_norm(linear(x_BTD, self.query_down[...]))
            q_BTNX = linear(latent_BTA, self.query_up[...])
        latent_BSC = self.latent_norm(linear(x_BTD, self.latent_down[...]))
        return q_BTNX, latent_BSC, linear(x_BTD, self.key_rope[...])[:, :, None, :]

    def _parts(self, x_BTD: jax.Array, positions_BT: jax.Array) -> tuple[jax.Array, ...]:
        """Return queries, both parts of the keys, and values, before rotation.

        The unrotated part of queries comes first; all heads share one rotated key.
        """
        q_BTNX, latent_BSC, k_rope_BS1P = self.project_qkv(x_BTD)
        k_BSNH = linear(latent_BSC, self.key_up[...])
        v_BSNU = linear(latent_BSC, self.value_up[...])
        if self.config.shift_keys:
            k_BSNH = smear_keys(k_BSNH, self.shift, positions_BT)
            k_rope_BS1P = smear_keys(k_rope_BS1P, self.shift_rope, positions_BT)
        return q_BTNX, k_BSNH, k_rope_BS1P, v_BSNU

    def compute_qkv(
        self, x_BTD: jax.Array, positions_BT: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries, keys, and values as `model.attention.Attention` does, one key per head.

        Features are in the order of the rotary table's pairs, i with i + (H + P) / 2: first those
        that rotate, then the others.
        """
        mla = self.config.mla
        assert mla is not None
        q_BTNX, k_BSNH, k_rope_BS1P, v_BSNU = self._parts(x_BTD, positions_BT)
        k_rope_BSNP = jnp.broadcast_to(k_rope_BS1P, (*k_BSNH.shape[:3], k_rope_BS1P.shape[3]))

        def in_pairs(nope, rope):
            halves = zip(jnp.split(rope, 2, axis=-1), jnp.split(nope, 2, axis=-1), strict=True)
            return jnp.concatenate([part for half in halves for part in half], axis=-1)

        q_nope_BTNH, q_rope_BTNP = jnp.split(q_BTNX, [mla.qk_nope_head_dim], axis=-1)
        return in_pairs(q_nope_BTNH, q_rope_BTNP), in_pairs(k_BSNH, k_rope_BSNP), v_BSNU

    def rotate_queries(
        self, q_BTNX: jax.Array, table: PositionTable, cos_sin, positions_BT: jax.Array
    ) -> jax.Array:
        """Return rotated queries; see `model.attention.Attention`. The unrotated part is first."""
        mla = self.config.mla
        assert mla is not None
        H = mla.qk_nope_head_dim
        # Unlike in DeepSeek's code, the two parts of a head may have different scales (YaRN's
        # temperature on rotated features only), so multiply the query by both.
        # All heads share the rotated key, so the table has one row for them (K = 1).
        scale_BT11 = query_scale(table, positions_BT)[..., None]
        scale_BT11 /= self.config.logit_divisor
        q_rope_BTNP = rotate(q_BTNX[..., H:], *cos_sin) * table.logit_scale
        q_nope_BTNH = q_BTNX[..., :H].astype(jnp.float32) * table.unrotated_logit_scale
        return scale_BT11 * jnp.concatenate([q_nope_BTNH, q_rope_BTNP], axis=-1)

    def __call__(
        self,
        x_BTD: jax.Array,
        table: PositionTable,
        cos_sin: tuple[jax.Array, jax.Array],
        positions_BT: jax.Array,
        segment_ids_BT: jax.Array,
    ) -> jax.Array:
        """Compute attention within documents; see `model.attention.Attention`; R is P / 2."""
        dtype = x_BTD.dtype
        q_BTNX, k_BSNH, k_rope_BS1P, v_BSNU = self._parts(x_BTD, positions_BT)
        with jax.named_scope("rope"):
            q_BTNX = self.rotate_queries(q_BTNX, table, cos_sin, positions_BT)
            k_rope_BS1P = rotate(k_rope_BS1P, *cos_sin).astype(dtype)
            k_rope_BSNP = jnp.broadcast_to(k_rope_BS1P, (*k_BSNH.shape[:3], k_rope_BS1P.shape[3]))
            k_BSNX = jnp.concatenate([k_BSNH, k_rope_BSNP], axis=-1)

        q_BTNX = q_BTNX.astype(dtype)
        out_BTNU = attend(self.config, q_BTNX, k_BSNX, v_BSNU, table, segment_ids_BT)
        return project(out_BTNU, self)
