"""Generation with a cache: `prefill` reads prompts, `decode_step` adds one token to every row.

Layers are unrolled here, not scanned, and their weights lie apart (`unstack`): windows give layers
caches of unlike sizes, and out of a stack every token would have to copy its layer's weights first.

A layer's cache is a ring: the token at position p lies in slot p modulo the ring's size, which is
the layer's window or, without one, room for the whole row. S counts slots; A, C, P, U as in
`model.mla`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from model.attention import Attention, project, shift_keys
from model.axes import over_tokens
from model.config import ModelConfig
from model.layers import RMSNorm
from model.mla import LatentAttention
from model.positions import PositionTable, cos_sin, rotate
from model.rotary import Rotary, repeated
from model.rotary.nope import Nope
from model.transformer import Block, Params

Weights = dict[str, Any]


class Layout(NamedTuple):
    """What a compiled program knows of the caches.

    Attributes:
      sizes: slots of each layer.
      unrotated: of each layer, whether its keys are kept as they were before rotation, because its
        table changes with the row's length.
    """

    sizes: tuple[int, ...]
    unrotated: tuple[bool, ...]


class KeyValues(NamedTuple):
    """The cache of a layer of `Attention`. Slots come last where a product sums over features.

    Attributes:
      k_BKHS: keys, mixed and (unless `Layout.unrotated`) rotated.
      v_BKSU: values.
      last_BKH: with `shift_keys`, the newest token's key, unmixed.
    """

    k_BKHS: jax.Array
    v_BKSU: jax.Array
    last_BKH: jax.Array | None


class Latents(NamedTuple):
    """The cache of a layer of `LatentAttention`.

    Attributes:
      latent_BSC: what keys and values are made from; their mixing is done on the logits.
      k_rope_BSP: the key that all heads share, as `KeyValues.k_BKHS`.
      last_B1P: with `shift_keys`, the newest token's shared key, unmixed.
    """

    latent_BSC: jax.Array
    k_rope_BSP: jax.Array
    last_B1P: jax.Array | None


Caches = tuple[KeyValues | Latents, ...]


def changing(config: ModelConfig) -> tuple[bool, ...]:
    """Of each layer, whether its frequencies change with the row's length."""
    heads = (
        layer if isinstance(layer, tuple) else (layer,)
        for layer in repeated(config.rotary, config.num_layers, "num_layers")
    )
    return tuple(any(type(h).at_length is not Rotary.at_length for h in each) for each in heads)


def layout(config: ModelConfig, room: int) -> Layout:
    """Caches for rows of up to `room` tokens. A layer with a window keeps that many at most."""
    windows = repeated(config.window, config.num_layers, "num_layers")
    # With latents the last key in sight is mixed with one that is not, on its logits.
    more = int(config.mla is not None and config.shift_keys)
    sizes = tuple(min(window + more, room) if window else room for window in windows)
    return Layout(sizes, changing(config))


def network(config: ModelConfig, dtype: str) -> ModelConfig:
    """What a compiled program reads of `config`: its sizes. The rest is in table and layout."""
    return dataclasses.replace(
        config, rotary=Nope(), window=None, compute_dtype=dtype, remat="none", attention="auto"
    )


def unstack(config: ModelConfig, params: Params) -> Weights:
    """`params` with a dict a layer, as device arrays, matrices in the compute dtype.

    The output matrix is `[D, V]`: a product with one token runs down whole rows of weights.
    """

    def own(leaf, *, rank: int = 2):
        # Matrix products cast them anyway, each time; what is a vector is computed with in float32.
        return jnp.asarray(leaf, config.compute_dtype if leaf.ndim >= rank else None)

    blocks = params["blocks"]
    output = params["embedding" if config.tie_embeddings else "output"]
    return {
        "embedding": own(params["embedding"]),
        "output": own(output).T,
        "final_norm": jax.tree.map(jnp.asarray, params["final_norm"]),
        "blocks": tuple(
            jax.tree.map(lambda leaf, layer=layer: own(leaf[layer]), blocks)
            for layer in range(config.num_layers)
        ),
    }


def prefill(
    config: ModelConfig,
    layout: Layout,
    weights: Weights,
    table: PositionTable,
    tokens_BT: jax.Array,
    lengths_B: jax.Array,
) -> tuple[jax.Array, Caches]:
    """Reads prompts.

    Args:
      config: as `network` makes it.
      layout: of the caches.
      weights: as `unstack` makes them.
      table: of the prompts; where it changes with length they have one length.
      tokens_BT: int32 ids, each row's from its first; what stands behind a prompt is not read.
      lengths_B: int32, tokens of each prompt.

    Returns:
      Float32 logits `[B, V]` of what comes after each prompt, and the caches.
    """
    B, T = tokens_BT.shape
    positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))
    segment_ids_BT = (positions_BT < lengths_B[:, None]).astype(jnp.int32)
    x_BTD = over_tokens(weights["embedding"][tokens_BT])
    caches = []
    layers = zip(weights["blocks"], *layout, _tables(table, positions_BT), strict=True)
    for params, size, unrotated, (layer_table, layer_cos_sin) in layers:
        block = _block(config, params)
        # The block computes these itself, once more in words and once in all: XLA sees it.
        normed_BTD = block.attention_norm(x_BTD)
        turn = None if unrotated else layer_cos_sin
        kept = _kept(block.attention, normed_BTD, turn, positions_BT)
        caches.append(_filled(kept, lengths_B, size))
        x_BTD = block(x_BTD, layer_table, layer_cos_sin, positions_BT, segment_ids_BT)
    last_B11 = (lengths_B - 1)[:, None, None]
    return _logits(config, weights, jnp.take_along_axis(x_BTD, last_B11, axis=1)), tuple(caches)


def decode_step(
    config: ModelConfig,
    layout: Layout,
    weights: Weights,
    table: PositionTable,
    caches: Caches,
    token: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, Caches]:
    """Adds one token to each row.

    Args:
      config, layout, weights: as of `prefill`.
      table: of rows of this length.
      caches: of all tokens before.
      token: int32 ids `[B]` and their positions `[B]`.

    Returns:
      Float32 logits `[B, V]` of what comes next, and the caches with this token.
    """
    tokens_B, positions_B = token
    x_B1D = weights["embedding"][tokens_B][:, None]
    new = []
    tables = _tables(table, positions_B[:, None])
    layers = zip(weights["blocks"], layout.unrotated, caches, tables, strict=True)
    for params, unrotated, cache, (layer_table, layer_cos_sin) in layers:
        block = _block(config, params)
        rotation = Rotation(layer_table, layer_cos_sin, positions_B, unrotated)
        normed_B1D = block.attention_norm(x_B1D)
        if isinstance(block.attention, LatentAttention):
            assert isinstance(cache, Latents)
            found_B1D, cache = _attend_latents(block.attention, normed_B1D, cache, rotation)
        else:
            assert isinstance(cache, KeyValues)
            found_B1D, cache = _attend(block.attention, normed_B1D, cache, rotation)
        x_B1D = x_B1D + found_B1D
        x_B1D = x_B1D + block.mlp(block.mlp_norm(x_B1D))
        new.append(cache)
    return _logits(config, weights, x_B1D), tuple(new)


def grown(caches: Caches, layout: Layout) -> Caches:
    """The caches with the sizes of another layout, in which rows that fit before still fit."""

    def pad(leaf: jax.Array, axis: int, size: int) -> jax.Array:
        widths = [(0, 0)] * leaf.ndim
        widths[axis] = (0, size - leaf.shape[axis])
        return jnp.pad(leaf, widths)

    def layer(cache, size):
        if isinstance(cache, Latents):
            return cache._replace(
                latent_BSC=pad(cache.latent_BSC, 1, size), k_rope_BSP=pad(cache.k_rope_BSP, 1, size)
            )
        return cache._replace(k_BKHS=pad(cache.k_BKHS, 3, size), v_BKSU=pad(cache.v_BKSU, 2, size))

    return tuple(map(layer, caches, layout.sizes))


class Rotation(NamedTuple):
    """What a layer needs to know of the token at hand.

    Attributes:
      table: the layer's row of the position table.
      cos_sin: at the token's position, `[B, 1, K, R]` each.
      positions_B: of the token.
      unrotated: as of `Layout`.
    """

    table: PositionTable
    cos_sin: tuple[jax.Array, jax.Array]
    positions_B: jax.Array
    unrotated: bool

    def distances(self, size: int) -> jax.Array:
        """How far back the token in each slot is, `[B, S]`; before a row's start in empty slots."""
        return jnp.mod(self.positions_B[:, None] - jnp.arange(size), size)

    def in_sight(self, distance_BS: jax.Array, blind: tuple[int, int] | None) -> jax.Array:
        """Bool `[B, S]`: the slots that hold a token which this one sees."""
        seen_BS = (distance_BS <= self.positions_B[:, None]) & (distance_BS < self.table.window)
        if blind is not None:
            seen_BS &= (distance_BS < blind[0]) | (distance_BS > blind[1])
        return seen_BS

    def turned(self, k_BSKH: jax.Array, distance_BS: jax.Array) -> jax.Array:
        """Cached keys, rotated now if they were not then."""
        if not self.unrotated:
            return k_BSKH
        positions_BS = self.positions_B[:, None] - distance_BS
        table = self.table
        angles = cos_sin(table.cycles_hi, table.cycles_lo, positions_BS)
        return rotate(k_BSKH, *angles).astype(k_BSKH.dtype)


def _tables(table: PositionTable, positions_BT: jax.Array) -> list[tuple[PositionTable, Any]]:
    """Each layer's row of the table, and its cosines and sines."""
    angles = jax.vmap(cos_sin, in_axes=(0, 0, None))(table.cycles_hi, table.cycles_lo, positions_BT)
    both = table, angles
    return [jax.tree.map(lambda x, i=i: x[i], both) for i in range(table.window.shape[0])]


def _put_together(make: Callable[[], Any], params: Params) -> Any:
    graph, state = nnx.split(nnx.eval_shape(make))
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


def _block(config: ModelConfig, params: Params) -> Block:
    return _put_together(lambda: Block(config, rngs=nnx.Rngs(params=0)), params)


def _logits(config: ModelConfig, weights: Weights, x_B1D: jax.Array) -> jax.Array:
    """As `transformer.logits`, of the one token of each row."""
    make = lambda: RMSNorm(config.embed_dim, config.norm_epsilon)  # noqa: E731
    x_BD = _put_together(make, weights["final_norm"])(x_B1D)[:, 0]
    return jnp.einsum("BD,DV->BV", x_BD, weights["output"], preferred_element_type=jnp.float32)


def _kept(attention, x_BTD, turn, positions_BT) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """What is cached of each token: keys (rotated by `turn`), values, and keys before mixing.

    Of latents the shared key comes first.
    """
    if isinstance(attention, LatentAttention):
        _, kept_BT, plain_BSKH = attention.projected(x_BTD)
    else:
        _, plain_BSKH, kept_BT = attention.projected(x_BTD)
    k_BSKH, last = plain_BSKH, None
    if attention.config.shift_keys:
        k_BSKH, last = shift_keys(plain_BSKH, _share(attention), positions_BT), plain_BSKH
    if turn is not None:
        k_BSKH = rotate(k_BSKH, *turn).astype(x_BTD.dtype)
    return k_BSKH, kept_BT, last


def _filled(kept, lengths_B: jax.Array, size: int) -> KeyValues | Latents:
    """The cache after a prompt: of each row its last tokens, as many as there are slots."""
    T = kept[0].shape[1]
    last_B1 = (lengths_B - 1)[:, None]
    # Slots before a row's start take its first token, which nothing looks at.
    places_BS = jnp.maximum(last_B1 - jnp.mod(last_B1 - jnp.arange(size), size), 0)

    def in_slots(x):
        if size >= T:  # places are as they are; what lies behind a prompt is written over
            return jnp.pad(x, [(0, 0), (0, size - T)] + [(0, 0)] * (x.ndim - 2))
        return jnp.take_along_axis(x, places_BS.reshape(*places_BS.shape, *[1] * (x.ndim - 2)), 1)

    k_BSKH, values, plain_BSKH = kept
    last = None
    if plain_BSKH is not None:
        last = jnp.take_along_axis(plain_BSKH, last_B1[:, :, None, None], 1)[:, 0]
    k_BSKH, values = in_slots(k_BSKH), in_slots(values)
    if values.ndim == 3:
        return Latents(values, k_BSKH[:, :, 0], last)
    return KeyValues(k_BSKH.transpose(0, 2, 3, 1), values.swapaxes(1, 2), last)


def _written(cache_BS, new_B, slots_B, axis: int) -> jax.Array:
    """The cache with each row's new entry in its slot; `axis` is of a row."""
    update = jax.lax.dynamic_update_index_in_dim
    return jax.vmap(lambda row, new, slot: update(row, new, slot, axis))(cache_BS, new_B, slots_B)


def _weights(logits_BXS: jax.Array, seen_BS: jax.Array) -> jax.Array:
    """Softmax over the slots in sight; `[B, ..., S]`."""
    seen = seen_BS.reshape(seen_BS.shape[0], *[1] * (logits_BXS.ndim - 2), seen_BS.shape[1])
    return jax.nn.softmax(jnp.where(seen, logits_BXS, -jnp.inf), axis=-1)


def _share(attention: Attention | LatentAttention) -> nnx.Param:
    """What the cached keys are mixed by."""
    return attention.shift_rope if isinstance(attention, LatentAttention) else attention.shift


def _mixed(attention, k_B1KH, last_BKH, positions_B) -> tuple[jax.Array, jax.Array | None]:
    """The new key, mixed with the one before, and what to mix into the next."""
    if not attention.config.shift_keys:
        return k_B1KH, None
    k_mixed_B1KH = shift_keys(k_B1KH, _share(attention), positions_B[:, None], last_BKH)
    return k_mixed_B1KH, k_B1KH[:, 0]


def _attend(
    attention: Attention, x_B1D: jax.Array, cache: KeyValues, rotation: Rotation
) -> tuple[jax.Array, KeyValues]:
    """What the new token finds, `[B, 1, D]`, and the cache with it."""
    dtype, positions_B1 = x_B1D.dtype, rotation.positions_B[:, None]
    q_B1NH, k_B1KH, v_B1KU = attention.projected(x_B1D)
    k_B1KH, last_BKH = _mixed(attention, k_B1KH, cache.last_BKH, rotation.positions_B)
    q_B1NH = attention.rotated_queries(q_B1NH, rotation.table, rotation.cos_sin, positions_B1)
    if not rotation.unrotated:
        k_B1KH = rotate(k_B1KH, *rotation.cos_sin).astype(dtype)

    B, K, _, S = cache.k_BKHS.shape
    slots_B = jnp.mod(rotation.positions_B, S)
    k_BKHS = _written(cache.k_BKHS, k_B1KH[:, 0], slots_B, 2)
    v_BKSU = _written(cache.v_BKSU, v_B1KU[:, 0], slots_B, 1)
    distance_BS = rotation.distances(S)
    turned_BKHS = k_BKHS
    if rotation.unrotated:
        k_BSKH = rotation.turned(k_BKHS.transpose(0, 3, 1, 2), distance_BS)
        turned_BKHS = k_BSKH.transpose(0, 2, 3, 1)
    q_BKGH = q_B1NH.astype(dtype).reshape(B, K, -1, q_B1NH.shape[-1])
    logits_BKGS = jnp.einsum(
        "BKGH,BKHS->BKGS", q_BKGH, turned_BKHS, preferred_element_type=jnp.float32
    )
    seen_BS = rotation.in_sight(distance_BS, attention.config.blind)
    weights_BKGS = _weights(logits_BKGS, seen_BS).astype(dtype)
    out_BKGU = jnp.einsum("BKGS,BKSU->BKGU", weights_BKGS, v_BKSU)
    out_B1NU = out_BKGU.reshape(B, 1, -1, out_BKGU.shape[-1])
    return project(out_B1NU, attention.out), KeyValues(k_BKHS, v_BKSU, last_BKH)


def _attend_latents(
    attention: LatentAttention, x_B1D: jax.Array, cache: Latents, rotation: Rotation
) -> tuple[jax.Array, Latents]:
    """As `_attend`. Keys and values are never made: their matrices are absorbed by the query and by
    what it found (2405.04434, Section 2.1.2)."""
    config = attention.config
    mla = config.mla
    assert mla is not None
    dtype, positions_B1 = x_B1D.dtype, rotation.positions_B[:, None]
    q_B1NX, latent_B1C, k_rope_B11P = attention.projected(x_B1D)
    k_rope_B11P, last_B1P = _mixed(attention, k_rope_B11P, cache.last_B1P, rotation.positions_B)
    q_B1NX = attention.rotated_queries(q_B1NX, rotation.table, rotation.cos_sin, positions_B1)
    if not rotation.unrotated:
        k_rope_B11P = rotate(k_rope_B11P, *rotation.cos_sin).astype(dtype)

    S = cache.latent_BSC.shape[1]
    slots_B = jnp.mod(rotation.positions_B, S)
    latent_BSC = _written(cache.latent_BSC, latent_B1C[:, 0], slots_B, 0)
    k_rope_BSP = _written(cache.k_rope_BSP, k_rope_B11P[:, 0, 0], slots_B, 0)
    distance_BS = rotation.distances(S)
    turned_BSP = rotation.turned(k_rope_BSP[:, :, None], distance_BS)[:, :, 0]

    q_nope_BNH, q_rope_BNP = jnp.split(q_B1NX[:, 0].astype(dtype), [mla.qk_nope_head_dim], axis=-1)
    q_latent_BNC = jnp.einsum("BNH,CNH->BNC", q_nope_BNH, attention.key_up[...].astype(dtype))
    logits_BNS = jnp.einsum(
        "BNC,BSC->BNS", q_latent_BNC, latent_BSC, preferred_element_type=jnp.float32
    )
    if config.shift_keys:
        # A key's mixing with the one before is its logit's, which lies in the slot before.
        previous_BNS = jnp.roll(logits_BNS, 1, axis=-1)
        is_first_BS = distance_BS == positions_B1
        previous_BNS = jnp.where(is_first_BS[:, None], 0, previous_BNS)
        share_N1 = jax.nn.sigmoid(attention.shift[...])[:, None]
        logits_BNS = (1 - share_N1) * logits_BNS + share_N1 * previous_BNS
    logits_BNS += jnp.einsum(
        "BNP,BSP->BNS", q_rope_BNP, turned_BSP, preferred_element_type=jnp.float32
    )
    weights_BNS = _weights(logits_BNS, rotation.in_sight(distance_BS, config.blind)).astype(dtype)
    found_BNC = jnp.einsum("BNS,BSC->BNC", weights_BNS, latent_BSC)
    out_BNU = jnp.einsum("BNC,CNU->BNU", found_BNC, attention.value_up[...].astype(dtype))
    return project(out_BNU[:, None], attention.out), Latents(latent_BSC, k_rope_BSP, last_B1P)
