"""Decoding with a cache: `prefill` processes prompts, `decode_step` adds one token to every row.

Layers are unrolled, not scanned, and each has its own weights (`unstack`), because windows give
layers caches of different sizes, and because every token would first copy a layer's weights out of
a stack. See `inference.cache` for S and E, and `model.mla` for A, C, P, and U.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from inference.cache import (
    Caches,
    KeyValues,
    Latents,
    Layout,
    append,
    fill_cache,
)
from model.attention import Attention, project, smear_keys
from model.axes import shard_tokens
from model.config import Architecture, ModelConfig
from model.layers import RMSNorm
from model.mask import is_visible
from model.mla import LatentAttention
from model.positions import PositionTable, cos_sin, rotate
from model.transformer import Block, Params

Weights = dict[str, Any]


class Token(NamedTuple):
    """The newest token of every row.

    Attributes:
      ids_B: int32.
      positions_B: int32, position in the row.
      step: number of tokens in the new caches, this one not counted.
    """

    ids_B: jax.Array
    positions_B: jax.Array
    step: jax.Array


def static_config(config: ModelConfig, dtype: str) -> Architecture:
    """Return the part of `config` that programs are compiled on; table and layout have the rest."""
    return dataclasses.replace(
        config.architecture, compute_dtype=dtype, remat="none", attention="auto"
    )


def unstack(config: Architecture, params: Params) -> Weights:
    """Convert `params` to one dict per layer, on the device, matrices in the compute dtype.

    The output matrix is `[D, V]`: a product with one token reads contiguous rows of weights.
    """

    def convert(leaf):
        # Matrix products would cast a matrix each time. Vectors are used in float32.
        return jnp.asarray(leaf, config.compute_dtype if leaf.ndim >= 2 else None)

    blocks = params["blocks"]
    output = params["embedding" if config.tie_embeddings else "output"]
    return {
        "embedding": convert(params["embedding"]),
        "output": convert(output).T,
        "final_norm": jax.tree.map(jnp.asarray, params["final_norm"]),
        "blocks": tuple(
            jax.tree.map(lambda leaf, layer=layer: convert(leaf[layer]), blocks)
            for layer in range(config.num_layers)
        ),
    }


def prefill(
    config: Architecture,
    layout: Layout,
    weights: Weights,
    table: PositionTable,
    tokens_BT: jax.Array,
    lengths_B: jax.Array,
) -> tuple[jax.Array, Caches]:
    """Process prompts.

    Args:
      config: see `static_config`.
      layout: layout of the caches.
      weights: see `unstack`.
      table: table of the prompts. If it depends on the length, all prompts have equal lengths.
      tokens_BT: int32 ids, padded at the end.
      lengths_B: int32, tokens of each prompt.

    Returns:
      Float32 logits `[B, V]` of the token after each prompt, and the caches.
    """
    B, T = tokens_BT.shape
    positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))
    segment_ids_BT = (positions_BT < lengths_B[:, None]).astype(jnp.int32)
    x_BTD = shard_tokens(weights["embedding"][tokens_BT])
    caches = []
    layers = zip(weights["blocks"], *layout, _layer_tables(table, positions_BT), strict=True)
    for params, size, unrotated, (layer_table, layer_cos_sin) in layers:
        block = _block(config, params)
        # The block computes these too; XLA merges equal computations.
        normed_BTD = block.attention_norm(x_BTD)
        rotation = None if unrotated else layer_cos_sin
        entries = _cache_entries(block.attention, normed_BTD, rotation, positions_BT)
        caches.append(fill_cache(entries, lengths_B, size))
        x_BTD = block(x_BTD, layer_table, layer_cos_sin, positions_BT, segment_ids_BT)
    last_B11 = (lengths_B - 1)[:, None, None]
    return _logits(config, weights, jnp.take_along_axis(x_BTD, last_B11, axis=1)), tuple(caches)


def decode_step(
    config: Architecture,
    layout: Layout,
    weights: Weights,
    table: PositionTable,
    caches: tuple[Caches, Caches],
    token: Token,
) -> tuple[jax.Array, Caches]:
    """Add one token to each row.

    Args:
      config, layout, weights: see `prefill`.
      table: table of rows of this length.
      caches: the caches, and the new caches (see `inference.cache.new_cache`).
      token: the newest token.

    Returns:
      Float32 logits `[B, V]` of the next token, and the new caches with this token.
    """
    x_B1D = weights["embedding"][token.ids_B][:, None]
    new_caches = []
    tables = _layer_tables(table, token.positions_B[:, None])
    layers = zip(weights["blocks"], layout.unrotated, *caches, tables, strict=True)
    for params, unrotated, cache, new, (layer_table, layer_cos_sin) in layers:
        block = _block(config, params)
        step = _Step(layer_table, layer_cos_sin, token, unrotated)
        normed_B1D = block.attention_norm(x_B1D)
        # The cache's class follows from the attention's.
        is_latent = isinstance(block.attention, LatentAttention)
        attend: Callable[..., Any] = _attend_latents if is_latent else _attend
        out_B1D, new = attend(block.attention, normed_B1D, (cache, new), step)
        x_B1D = x_B1D + out_B1D
        x_B1D = x_B1D + block.mlp(block.mlp_norm(x_B1D))
        new_caches.append(new)
    return _logits(config, weights, x_B1D), tuple(new_caches)


class _Step(NamedTuple):
    """The inputs of one layer for the newest token.

    Attributes:
      table: the layer's row of the position table.
      cos_sin: cosines and sines at the token's position, `[B, 1, K, R]` each.
      token: the newest token.
      unrotated: see `Layout`.
    """

    table: PositionTable
    cos_sin: tuple[jax.Array, jax.Array]
    token: Token
    unrotated: bool

    @property
    def positions(self) -> jax.Array:
        """The token's position, `[B, 1]`."""
        return self.token.positions_B[:, None]

    def distances(self, size: int, new_size: int) -> jax.Array:
        """Return the distance to the token in each slot, `[B, S + E]`.

        It is negative in unused slots of the new cache, and in unused slots of the cache it reaches
        back before the start of the row.
        """
        newest_B1 = self.positions - self.token.step - 1  # the newest token of the cache
        old_BS = self.token.step + 1 + jnp.mod(newest_B1 - jnp.arange(size), size)
        new_E = self.token.step - jnp.arange(new_size)
        return jnp.concatenate([old_BS, jnp.broadcast_to(new_E, (len(old_BS), new_size))], axis=1)

    def attention_weights(
        self, logits: jax.Array, distance_BS: jax.Array, masked_distances: tuple[int, int] | None
    ) -> jax.Array:
        """Return the softmax of logits `[B, ..., S + E]` over the slots of visible tokens."""
        mask_BS = is_visible(distance_BS, self.table.window, masked_distances)
        mask_BS &= distance_BS <= self.positions
        mask = mask_BS.reshape(len(mask_BS), *[1] * (logits.ndim - 2), -1)
        return jax.nn.softmax(jnp.where(mask, logits, -jnp.inf), axis=-1)

    def rotate_cached(self, k_BSKH: jax.Array, distance_BS: jax.Array) -> jax.Array:
        """Return cached keys, rotated now if they are cached unrotated."""
        if not self.unrotated:
            return k_BSKH
        table = self.table
        angles = cos_sin(table.cycles_hi, table.cycles_lo, self.positions - distance_BS)
        return rotate(k_BSKH, *angles).astype(k_BSKH.dtype)


def _layer_tables(table: PositionTable, positions_BT: jax.Array) -> list[tuple[PositionTable, Any]]:
    """Return each layer's row of the table, and its cosines and sines."""
    angles = jax.vmap(cos_sin, in_axes=(0, 0, None))(table.cycles_hi, table.cycles_lo, positions_BT)
    rows = table, angles
    return [jax.tree.map(lambda x, i=i: x[i], rows) for i in range(table.window.shape[0])]


def _merge_module(make: Callable[[], Any], params: Params) -> Any:
    graph, state = nnx.split(nnx.eval_shape(make))
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


def _block(config: Architecture, params: Params) -> Block:
    return _merge_module(lambda: Block(config, rngs=nnx.Rngs(params=0)), params)


def _logits(config: Architecture, weights: Weights, x_B1D: jax.Array) -> jax.Array:
    """Return `transformer.logits` of one token per row, `[B, V]`."""
    make = lambda: RMSNorm(config.embed_dim, config.norm_epsilon)  # noqa: E731
    x_BD = _merge_module(make, weights["final_norm"])(x_B1D)[:, 0]
    return jnp.einsum("BD,DV->BV", x_BD, weights["output"], preferred_element_type=jnp.float32)


def _cache_entries(
    attention, x_BTD, rotation, positions_BT
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return keys (rotated by `rotation`), values or latents, and keys before smearing.

    With latents, the keys are the shared key.
    """
    if isinstance(attention, LatentAttention):
        _, values, unsmeared_BSKH = attention.project_qkv(x_BTD)
    else:
        _, unsmeared_BSKH, values = attention.project_qkv(x_BTD)
    k_BSKH, last = unsmeared_BSKH, None
    if attention.config.shift_keys:
        k_BSKH = smear_keys(unsmeared_BSKH, _smear_share(attention), positions_BT)
        last = unsmeared_BSKH
    if rotation is not None:
        k_BSKH = rotate(k_BSKH, *rotation).astype(x_BTD.dtype)
    return k_BSKH, values, last


def _smear_share(attention: Attention | LatentAttention) -> nnx.Param:
    """Return the parameter that smears cached keys."""
    return attention.shift_rope if isinstance(attention, LatentAttention) else attention.shift


def _new_key(attention, k_B1KH, last_BKH, step: _Step) -> tuple[jax.Array, Any]:
    """Return the new key as it is cached, and the key that the next token smears in."""
    new_last = None
    if attention.config.shift_keys:
        new_last = k_B1KH[:, 0]
        k_B1KH = smear_keys(k_B1KH, _smear_share(attention), step.positions, last_BKH)
    if not step.unrotated:
        k_B1KH = rotate(k_B1KH, *step.cos_sin).astype(k_B1KH.dtype)
    return k_B1KH[:, 0], new_last


def _attend(
    attention: Attention, x_B1D: jax.Array, caches: tuple[KeyValues, KeyValues], step: _Step
) -> tuple[jax.Array, KeyValues]:
    """Return attention's output for the new token, `[B, 1, D]`, and the new cache with it."""
    dtype = x_B1D.dtype
    old, new = caches
    q_B1NH, k_B1KH, v_B1KU = attention.project_qkv(x_B1D)
    k_BKH, last_BKH = _new_key(attention, k_B1KH, new.last_BKH, step)
    new = append(new, (k_BKH, v_B1KU[:, 0], last_BKH), step.token.step)
    q_B1NH = attention.rotate_queries(q_B1NH, step.table, step.cos_sin, step.positions)
    B, K, H, S = old.k_BKHS.shape
    q_BKGH = q_B1NH.astype(dtype).reshape(B, K, -1, H)
    distances = step.distances(S, new.k_BKHS.shape[3])

    def logits(k_BKHS, distance_BS):
        if step.unrotated:
            k_BSKH = step.rotate_cached(k_BKHS.transpose(0, 3, 1, 2), distance_BS)
            k_BKHS = k_BSKH.transpose(0, 2, 3, 1)
        return jnp.einsum("BKGH,BKHS->BKGS", q_BKGH, k_BKHS, preferred_element_type=jnp.float32)

    both = [logits(old.k_BKHS, distances[:, :S]), logits(new.k_BKHS, distances[:, S:])]
    weights = step.attention_weights(
        jnp.concatenate(both, -1), distances, attention.config.masked_distances
    ).astype(dtype)
    out_BKGU = jnp.einsum("BKGS,BKSU->BKGU", weights[..., :S], old.v_BKSU)
    out_BKGU += jnp.einsum("BKGE,BKEU->BKGU", weights[..., S:], new.v_BKSU)
    return project(out_BKGU.reshape(B, 1, -1, out_BKGU.shape[-1]), attention.out), new


def _attend_latents(
    attention: LatentAttention, x_B1D: jax.Array, caches: tuple[Latents, Latents], step: _Step
) -> tuple[jax.Array, Latents]:
    """Return what `_attend` returns, without computing keys and values.

    The query and the output absorb the up-projections (2405.04434, Section 2.1.2).
    """
    config, mla = attention.config, attention.config.mla
    assert mla is not None
    dtype = x_B1D.dtype
    old, new = caches
    q_B1NX, latent_B1C, k_rope_B11P = attention.project_qkv(x_B1D)
    k_rope_B1P, last_B1P = _new_key(attention, k_rope_B11P, new.last_B1P, step)
    new = append(new, (latent_B1C[:, 0], k_rope_B1P[:, 0], last_B1P), step.token.step)
    q_B1NX = attention.rotate_queries(q_B1NX, step.table, step.cos_sin, step.positions)
    q_nope_BNH, q_rope_BNP = jnp.split(q_B1NX[:, 0].astype(dtype), [mla.qk_nope_head_dim], axis=-1)
    q_latent_BNC = jnp.einsum("BNH,CNH->BNC", q_nope_BNH, attention.key_up[...].astype(dtype))
    S = old.latent_BSC.shape[1]
    distances = step.distances(S, new.latent_BSC.shape[1])
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    old_BNS = product("BNC,BSC->BNS", q_latent_BNC, old.latent_BSC)
    new_BNE = product("BNC,BEC->BNE", q_latent_BNC, new.latent_BSC)
    if config.shift_keys:
        # Smear the logits instead of the keys: the previous key's logit is in the slot before.
        before_B = jnp.mod(step.token.positions_B - step.token.step - 1, S)
        newest_BN1 = jnp.take_along_axis(old_BNS, before_B[:, None, None], axis=2)
        previous = [jnp.roll(old_BNS, 1, axis=-1), newest_BN1, new_BNE[..., :-1]]
        is_first = (distances == step.positions)[:, None]
        previous = jnp.where(is_first, 0, jnp.concatenate(previous, axis=-1))
        share_N1 = jax.nn.sigmoid(attention.shift[...])[:, None]
        logits = (1 - share_N1) * jnp.concatenate([old_BNS, new_BNE], -1) + share_N1 * previous
    else:
        logits = jnp.concatenate([old_BNS, new_BNE], axis=-1)

    def rope_logits(k_rope_BSP, distance_BS):
        k_rope_BSP = step.rotate_cached(k_rope_BSP[:, :, None], distance_BS)[:, :, 0]
        return product("BNP,BSP->BNS", q_rope_BNP, k_rope_BSP)

    rope = [
        rope_logits(old.k_rope_BSP, distances[:, :S]),
        rope_logits(new.k_rope_BSP, distances[:, S:]),
    ]
    logits += jnp.concatenate(rope, -1)
    weights = step.attention_weights(logits, distances, config.masked_distances).astype(dtype)
    out_BNC = jnp.einsum("BNS,BSC->BNC", weights[..., :S], old.latent_BSC)
    out_BNC += jnp.einsum("BNE,BEC->BNC", weights[..., S:], new.latent_BSC)
    out_BNU = jnp.einsum("BNC,CNU->BNU", out_BNC, attention.value_up[...].astype(dtype))
    return project(out_BNU[:, None], attention.out), new
