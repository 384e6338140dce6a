"""Generation with a cache: `prefill` reads prompts, `decode_step` adds one token to every row.

Layers are unrolled here, not scanned, and their weights lie apart (`unstack`): windows give layers
caches of unlike sizes, and out of a stack every token would have to copy its layer's weights first.

A layer's cache is a ring: the token at position p lies in slot p modulo the ring's size, which is
the layer's window or, without one, room for the whole row. While a program adds tokens, caches are
only read, or XLA would copy them for each: the new tokens lie in caches of their own, a slot a
step, and are moved over at the end (`merged`). S counts slots of the one, E of the other; A, C, P
and U are as in `model.mla`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from model.attention import Attention, project, smear_keys
from model.axes import shard_tokens
from model.config import ModelConfig
from model.layers import RMSNorm
from model.mla import LatentAttention
from model.positions import PositionTable, cos_sin, rotate
from model.rotary import Rotary, repeat_pattern
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
        for layer in repeat_pattern(config.rotary, config.num_layers, "num_layers")
    )
    return tuple(any(type(h).at_length is not Rotary.at_length for h in each) for each in heads)


def layout(config: ModelConfig, room: int) -> Layout:
    """Caches for rows of up to `room` tokens. A layer with a window keeps that many at most."""
    windows = repeat_pattern(config.window, config.num_layers, "num_layers")
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
    x_BTD = shard_tokens(weights["embedding"][tokens_BT])
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


class Token(NamedTuple):
    """The newest token of every row.

    Attributes:
      ids_B: int32.
      positions_B: int32, its place in its row.
      step: how many were added to each row since the caches were merged, this one not counted.
    """

    ids_B: jax.Array
    positions_B: jax.Array
    step: jax.Array


def recent(caches: Caches, size: int) -> Caches:
    """Caches for `size` tokens that come after those of `caches`."""

    def empty(leaf: jax.Array, axis: int) -> jax.Array:
        return jnp.zeros((*leaf.shape[:axis], size, *leaf.shape[axis + 1 :]), leaf.dtype)

    def layer(cache: KeyValues | Latents) -> KeyValues | Latents:
        if isinstance(cache, Latents):
            latent_BEC, k_rope_BEP = empty(cache.latent_BSC, 1), empty(cache.k_rope_BSP, 1)
            return cache._replace(latent_BSC=latent_BEC, k_rope_BSP=k_rope_BEP)
        return cache._replace(k_BKHS=empty(cache.k_BKHS, 3), v_BKSU=empty(cache.v_BKSU, 2))

    return tuple(map(layer, caches))


def merged(caches: Caches, recent: Caches, starts_B: jax.Array, count: jax.Array) -> Caches:
    """The caches with the first `count` recent tokens, which begin at these positions."""

    def move(cache, new, axis: int):
        size, E = cache.shape[axis], new.shape[axis]
        slots_BE = jnp.mod(starts_B[:, None] + jnp.arange(E), size)
        # Of what would go round more than once the last stays; a slot that is none is left out.
        steps_E = jnp.arange(E)
        is_kept_E = (steps_E < count) & (steps_E >= count - size)
        slots_BE = jnp.where(is_kept_E, slots_BE, size)
        rows_B1 = jnp.arange(cache.shape[0])[:, None]
        places = (rows_B1, *[slice(None)] * (axis - 1), slots_BE)
        # Indices that a slice parts come first.
        return cache.at[places].set(jnp.moveaxis(new, axis, 1), mode="drop")

    def layer(cache: KeyValues | Latents, new: KeyValues | Latents) -> KeyValues | Latents:
        if isinstance(cache, Latents):
            assert isinstance(new, Latents)
            latent_BSC = move(cache.latent_BSC, new.latent_BSC, 1)
            return Latents(latent_BSC, move(cache.k_rope_BSP, new.k_rope_BSP, 1), new.last_B1P)
        assert isinstance(new, KeyValues)
        k_BKHS, v_BKSU = move(cache.k_BKHS, new.k_BKHS, 3), move(cache.v_BKSU, new.v_BKSU, 2)
        return KeyValues(k_BKHS, v_BKSU, new.last_BKH)

    return tuple(map(layer, caches, recent))


def decode_step(
    config: ModelConfig,
    layout: Layout,
    weights: Weights,
    table: PositionTable,
    caches: tuple[Caches, Caches],
    token: Token,
) -> tuple[jax.Array, Caches]:
    """Adds one token to each row.

    Args:
      config, layout, weights: as of `prefill`.
      table: of rows of this length.
      caches: of the tokens before, and the recent ones (see `recent`).
      token: see `Token`.

    Returns:
      Float32 logits `[B, V]` of what comes next, and the recent caches with this token.
    """
    x_B1D = weights["embedding"][token.ids_B][:, None]
    new = []
    tables = _tables(table, token.positions_B[:, None])
    layers = zip(weights["blocks"], layout.unrotated, *caches, tables, strict=True)
    for params, unrotated, old, recent, (layer_table, layer_cos_sin) in layers:
        block = _block(config, params)
        rotation = Rotation(layer_table, layer_cos_sin, token, unrotated)
        normed_B1D = block.attention_norm(x_B1D)
        if isinstance(block.attention, LatentAttention):
            assert isinstance(old, Latents) and isinstance(recent, Latents)
            found_B1D, recent = _attend_latents(
                block.attention, normed_B1D, (old, recent), rotation
            )
        else:
            assert isinstance(old, KeyValues) and isinstance(recent, KeyValues)
            found_B1D, recent = _attend(block.attention, normed_B1D, (old, recent), rotation)
        x_B1D = x_B1D + found_B1D
        x_B1D = x_B1D + block.mlp(block.mlp_norm(x_B1D))
        new.append(recent)
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
      token: itself.
      unrotated: as of `Layout`.
    """

    table: PositionTable
    cos_sin: tuple[jax.Array, jax.Array]
    token: Token
    unrotated: bool

    @property
    def place(self) -> jax.Array:
        """The token's position, `[B, 1]`."""
        return self.token.positions_B[:, None]

    def distances(self, size: int, recent: int) -> jax.Array:
        """How far back the token in each slot is, `[B, S + E]`; negative in slots yet to come.

        In slots that were empty it is a distance from before the row's start.
        """
        newest_B1 = self.place - self.token.step - 1  # of those in the older cache
        old_BS = self.token.step + 1 + jnp.mod(newest_B1 - jnp.arange(size), size)
        new_E = self.token.step - jnp.arange(recent)
        return jnp.concatenate([old_BS, jnp.broadcast_to(new_E, (len(old_BS), recent))], axis=1)

    def weights(self, logits: jax.Array, distances: jax.Array, masked_distances) -> jax.Array:
        """Softmax of logits `[B, ..., S + E]` over the slots whose tokens are seen."""
        seen = (distances >= 0) & (distances <= self.place)
        seen &= distances < self.table.window
        if masked_distances is not None:
            seen &= (distances < masked_distances[0]) | (distances > masked_distances[1])
        seen = seen.reshape(len(seen), *[1] * (logits.ndim - 2), -1)
        return jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), axis=-1)

    def turned(self, k_BSKH: jax.Array, distance_BS: jax.Array) -> jax.Array:
        """Cached keys, rotated now if they were not then."""
        if not self.unrotated:
            return k_BSKH
        table = self.table
        angles = cos_sin(table.cycles_hi, table.cycles_lo, self.place - distance_BS)
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
        _, kept_BT, plain_BSKH = attention.project_qkv(x_BTD)
    else:
        _, plain_BSKH, kept_BT = attention.project_qkv(x_BTD)
    k_BSKH, last = plain_BSKH, None
    if attention.config.shift_keys:
        k_BSKH, last = smear_keys(plain_BSKH, _share(attention), positions_BT), plain_BSKH
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


def _share(attention: Attention | LatentAttention) -> nnx.Param:
    """What the cached keys are mixed by."""
    return attention.shift_rope if isinstance(attention, LatentAttention) else attention.shift


def _new_key(attention, k_B1KH, last_BKH, rotation: Rotation) -> tuple[jax.Array, Any]:
    """The new key as it is cached, and what is mixed into the next one."""
    new_last = None
    if attention.config.shift_keys:
        new_last = k_B1KH[:, 0]
        k_B1KH = smear_keys(k_B1KH, _share(attention), rotation.place, last_BKH)
    if not rotation.unrotated:
        k_B1KH = rotate(k_B1KH, *rotation.cos_sin).astype(k_B1KH.dtype)
    return k_B1KH[:, 0], new_last


def _attend(
    attention: Attention,
    x_B1D: jax.Array,
    caches: tuple[KeyValues, KeyValues],
    rotation: Rotation,
) -> tuple[jax.Array, KeyValues]:
    """What the new token finds, `[B, 1, D]`, and the recent cache with it."""
    dtype, step = x_B1D.dtype, rotation.token.step
    old, recent = caches
    q_B1NH, k_B1KH, v_B1KU = attention.project_qkv(x_B1D)
    k_BKH, last_BKH = _new_key(attention, k_B1KH, recent.last_BKH, rotation)
    put = jax.lax.dynamic_update_index_in_dim
    recent = KeyValues(
        put(recent.k_BKHS, k_BKH, step, 3), put(recent.v_BKSU, v_B1KU[:, 0], step, 2), last_BKH
    )
    q_B1NH = attention.rotate_queries(q_B1NH, rotation.table, rotation.cos_sin, rotation.place)
    B, K, H, S = old.k_BKHS.shape
    q_BKGH = q_B1NH.astype(dtype).reshape(B, K, -1, H)
    distances = rotation.distances(S, recent.k_BKHS.shape[3])

    def logits(k_BKHS, distance_BS):
        if rotation.unrotated:
            k_BSKH = rotation.turned(k_BKHS.transpose(0, 3, 1, 2), distance_BS)
            k_BKHS = k_BSKH.transpose(0, 2, 3, 1)
        return jnp.einsum("BKGH,BKHS->BKGS", q_BKGH, k_BKHS, preferred_element_type=jnp.float32)

    both = [logits(old.k_BKHS, distances[:, :S]), logits(recent.k_BKHS, distances[:, S:])]
    weights = rotation.weights(
        jnp.concatenate(both, -1), distances, attention.config.masked_distances
    )
    weights = weights.astype(dtype)
    out_BKGU = jnp.einsum("BKGS,BKSU->BKGU", weights[..., :S], old.v_BKSU)
    out_BKGU += jnp.einsum("BKGE,BKEU->BKGU", weights[..., S:], recent.v_BKSU)
    return project(out_BKGU.reshape(B, 1, -1, out_BKGU.shape[-1]), attention.out), recent


def _attend_latents(
    attention: LatentAttention,
    x_B1D: jax.Array,
    caches: tuple[Latents, Latents],
    rotation: Rotation,
) -> tuple[jax.Array, Latents]:
    """As `_attend`.

    Keys and values are never made: their matrices are absorbed by the query and by what it found
    (2405.04434, Section 2.1.2).
    """
    config, mla = attention.config, attention.config.mla
    assert mla is not None
    dtype, step = x_B1D.dtype, rotation.token.step
    old, recent = caches
    q_B1NX, latent_B1C, k_rope_B11P = attention.project_qkv(x_B1D)
    k_rope_B1P, last_B1P = _new_key(attention, k_rope_B11P, recent.last_B1P, rotation)
    put = jax.lax.dynamic_update_index_in_dim
    recent = Latents(
        put(recent.latent_BSC, latent_B1C[:, 0], step, 1),
        put(recent.k_rope_BSP, k_rope_B1P[:, 0], step, 1),
        last_B1P,
    )
    q_B1NX = attention.rotate_queries(q_B1NX, rotation.table, rotation.cos_sin, rotation.place)
    q_nope_BNH, q_rope_BNP = jnp.split(q_B1NX[:, 0].astype(dtype), [mla.qk_nope_head_dim], axis=-1)
    q_latent_BNC = jnp.einsum("BNH,CNH->BNC", q_nope_BNH, attention.key_up[...].astype(dtype))
    S = old.latent_BSC.shape[1]
    distances = rotation.distances(S, recent.latent_BSC.shape[1])
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    old_BNS = product("BNC,BSC->BNS", q_latent_BNC, old.latent_BSC)
    new_BNE = product("BNC,BEC->BNE", q_latent_BNC, recent.latent_BSC)
    if config.shift_keys:
        # A key's mixing with the one before is its logit's, which lies in the slot before.
        before_B = jnp.mod(rotation.token.positions_B - step - 1, S)
        newest_BN1 = jnp.take_along_axis(old_BNS, before_B[:, None, None], axis=2)
        previous = [jnp.roll(old_BNS, 1, axis=-1), newest_BN1, new_BNE[..., :-1]]
        is_first = (distances == rotation.place)[:, None]
        previous = jnp.where(is_first, 0, jnp.concatenate(previous, axis=-1))
        share_N1 = jax.nn.sigmoid(attention.shift[...])[:, None]
        logits = (1 - share_N1) * jnp.concatenate([old_BNS, new_BNE], -1) + share_N1 * previous
    else:
        logits = jnp.concatenate([old_BNS, new_BNE], axis=-1)

    def rope_logits(k_rope_BSP, distance_BS):
        k_rope_BSP = rotation.turned(k_rope_BSP[:, :, None], distance_BS)[:, :, 0]
        return product("BNP,BSP->BNS", q_rope_BNP, k_rope_BSP)

    rope = [
        rope_logits(old.k_rope_BSP, distances[:, :S]),
        rope_logits(recent.k_rope_BSP, distances[:, S:]),
    ]
    weights = rotation.weights(
        logits + jnp.concatenate(rope, -1), distances, config.masked_distances
    )
    weights = weights.astype(dtype)
    found_BNC = jnp.einsum("BNS,BSC->BNC", weights[..., :S], old.latent_BSC)
    found_BNC += jnp.einsum("BNE,BEC->BNC", weights[..., S:], recent.latent_BSC)
    out_BNU = jnp.einsum("BNC,CNU->BNU", found_BNC, attention.value_up[...].astype(dtype))
    return project(out_BNU[:, None], attention.out), recent
