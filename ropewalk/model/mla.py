"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, Section 2.1).

Keys and values are projections of one narrow latent. Only a part of each head is rotated; all heads
share the key of that part.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from ropewalk.model.attention import Attention, QueryKeyValue, smear_keys
from ropewalk.model.config import Architecture, MlaConfig
from ropewalk.model.layers import Norm, linear, normal_param, zeros_param


class LatentAttention(Attention):
    """softmax(q_nope · k_nope + rotate(q_rope) · rotate(k_rope)) v, through latents.

    Only the projections differ from `Attention`. Additional shape letters: A is q_lora_rank,
    C kv_lora_rank, H qk_nope_head_dim, P qk_rope_head_dim, U v_head_dim.
    """

    def __init__(self, config: Architecture, mla: MlaConfig, *, rngs: nnx.Rngs):
        D, N, A, C = config.embed_dim, config.num_heads, mla.q_lora_rank, mla.kv_lora_rank
        H, P, U = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
        if A is None:
            self.query = normal_param(rngs, (D, N, H + P), ("embed", "heads", None), fan_in=D)
        else:
            self.query_down = normal_param(rngs, (D, A), ("embed", None), fan_in=D)
            self.query_latent_norm = Norm(config, A)
            self.query_up = normal_param(rngs, (A, N, H + P), (None, "heads", None), fan_in=A)
        self.latent_down = normal_param(rngs, (D, C), ("embed", None), fan_in=D)
        self.latent_norm = Norm(config, C)
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
        self.config, self.mla = config, mla

    def project_qkv(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries `[B, T, N, H + P]`, the latent, and the shared key `[B, S, 1, P]`.

        The unrotated part of queries comes first. Nothing is rotated or smeared yet.
        """
        if self.mla.q_lora_rank is None:
            q_BTNX = linear(x_BTD, self.query[...])
        else:
            latent_BTA = self.query_latent_norm(linear(x_BTD, self.query_down[...]))
            q_BTNX = linear(latent_BTA, self.query_up[...])
        latent_BSC = self.latent_norm(linear(x_BTD, self.latent_down[...]))
        return q_BTNX, latent_BSC, linear(x_BTD, self.key_rope[...])[:, :, None, :]

    def compute_qkv(self, x_BTD: jax.Array, positions_BT: jax.Array) -> QueryKeyValue:
        """Return queries and keys `[B, T, N, H + P]`, and values, before rotation.

        The unrotated part comes first; the part that rotates is the same in the keys of all heads.
        """
        q_BTNX, latent_BSC, k_rope_BS1P = self.project_qkv(x_BTD)
        k_BSNH = linear(latent_BSC, self.key_up[...])
        v_BSNU = linear(latent_BSC, self.value_up[...])
        if self.config.shift_keys:
            k_BSNH = smear_keys(k_BSNH, self.shift, positions_BT)
            k_rope_BS1P = smear_keys(k_rope_BS1P, self.shift_rope, positions_BT)
        k_rope_BSNP = jnp.broadcast_to(k_rope_BS1P, (*k_BSNH.shape[:3], self.mla.qk_rope_head_dim))
        return q_BTNX, jnp.concatenate([k_BSNH, k_rope_BSNP], axis=-1), v_BSNU
