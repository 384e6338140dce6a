"""Decoding with a cache: `prefill` processes prompts, `decode_step` adds one token to every row.

Layers are unrolled, not scanned, and each has its own weights (`unstack`), because windows give
layers caches of different sizes, and because every token would first copy a layer's weights out of
a stack. See `cache` for S and E.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ropewalk.evals.generation.cache import Caches, LayerCache, append, fill_cache
from ropewalk.model import transformer
from ropewalk.model.attention import Attention, rotate_queries, smear_keys
from ropewalk.model.axes import shard_tokens
from ropewalk.model.config import Architecture, PositionTable
from ropewalk.model.kernels.matmul import product
from ropewalk.model.mask import is_visible
from ropewalk.model.positions import cos_sin, rotate

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


def unstack(config: Architecture, params: transformer.Params) -> Weights:
    """Convert `params` to one dict per layer, on the device, matrices in the compute dtype.

    The output matrix is `[D, V]`: a product with one token reads contiguous rows of weights.
    """

    def convert(leaf):
        # Matrix products would cast a matrix each time. Vectors are used in float32.
        return jnp.asarray(leaf, config.compute_dtype if leaf.ndim >= 2 else None)

    blocks = params["blocks"]
    return {
        "embedding": transformer.scale_embedding(config, convert(params["embedding"])),
        "output": convert(transformer.output_matrix(config, params)).T,
        "final_norm": jax.tree.map(jnp.asarray, params["final_norm"]),
        "blocks": tuple(
            jax.tree.map(lambda leaf, layer=layer: convert(leaf[layer]), blocks)
            for layer in range(config.num_layers)
        ),
    }


def prefill(
    config: Architecture,
    sizes: tuple[int, ...] | None,
    weights: Weights,
    table: PositionTable,
    tokens_BT: jax.Array,
    lengths_B: jax.Array,
) -> tuple[jax.Array, Caches]:
    """Process prompts.

    Args:
      config: see `ModelConfig.forward_architecture`.
      sizes: slots of each layer's cache; None: no caches.
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
    layers = zip(weights["blocks"], _layer_tables(table, positions_BT), strict=True)
    for layer, (params, (layer_table, layer_cos_sin)) in enumerate(layers):
        block = transformer.build(transformer.Block, config, params)
        if sizes is not None:
            # The block computes these too; XLA merges equal computations.
            normed_BTD = block.attention_norm(x_BTD)
            _, entries = _project(block.attention, normed_BTD, layer_cos_sin, positions_BT)
            caches.append(fill_cache(entries, lengths_B, sizes[layer]))
        x_BTD = block(x_BTD, layer_table, layer_cos_sin, positions_BT, segment_ids_BT)
    last_B11 = (lengths_B - 1)[:, None, None]
    return _logits(config, weights, jnp.take_along_axis(x_BTD, last_B11, axis=1)), tuple(caches)


def decode_step(
    config: Architecture,
    weights: Weights,
    table: PositionTable,
    caches: tuple[Caches, Caches],
    token: Token,
) -> tuple[jax.Array, Caches]:
    """Add one token to each row.

    Args:
      config, weights: see `prefill`. Latent attention has no caches.
      table: table of the rows.
      caches: the caches, and the new caches (see `cache.new_cache`).
      token: the newest token.

    Returns:
      Float32 logits `[B, V]` of the next token, and the new caches with this token.
    """
    x_B1D = weights["embedding"][token.ids_B][:, None]
    new_caches = []
    tables = _layer_tables(table, token.positions_B[:, None])
    layers = zip(weights["blocks"], *caches, tables, strict=True)
    for params, cache, new, (layer_table, layer_cos_sin) in layers:
        block = transformer.build(transformer.Block, config, params)
        step = _Step(layer_table, layer_cos_sin, token)
        normed_B1D = block.attention_norm(x_B1D)
        out_B1D, new = _attend(block.attention, normed_B1D, (cache, new), step)
        x_B1D = block.add_outputs(x_B1D, out_B1D)
        new_caches.append(new)
    return _logits(config, weights, x_B1D), tuple(new_caches)


class _Step(NamedTuple):
    """The inputs of one layer for the newest token.

    Attributes:
      table: the layer's row of the position table.
      cos_sin: cosines and sines at the token's position, `[B, 1, K, R]` each.
      token: the newest token.
    """

    table: PositionTable
    cos_sin: tuple[jax.Array, jax.Array]
    token: Token

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


def _layer_tables(table: PositionTable, positions_BT: jax.Array) -> list[tuple[PositionTable, Any]]:
    """Return each layer's row of the table, and its cosines and sines."""
    angles = jax.vmap(cos_sin, in_axes=(0, 0, None))(table.cycles_hi, table.cycles_lo, positions_BT)
    rows = table, angles
    return [jax.tree.map(lambda x, i=i: x[i], rows) for i in range(table.window.shape[0])]


def _logits(config: Architecture, weights: Weights, x_B1D: jax.Array) -> jax.Array:
    """Return `transformer.logits` of one token per row, `[B, V]`."""
    x_BD = transformer.normalize(config, weights["final_norm"], x_B1D)[:, 0]
    return product("BD,DV->BV", x_BD, weights["output"])


def _project(
    attention: Any, x_BTD: jax.Array, rotation, positions_BT: jax.Array, before_BKH: Any = None
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array | None]]:
    """Return queries, and what is cached: rotated keys, values, and keys before smearing.

    `smear_keys` has `before_BKH`.
    """
    q_BTNH, k_BTKH, v_BTKU = attention.project_qkv(x_BTD)
    last_BTKH = None
    if attention.config.shift_keys:
        last_BTKH = k_BTKH
        k_BTKH = smear_keys(k_BTKH, attention.shift, positions_BT, before_BKH)
    return q_BTNH, (rotate(k_BTKH, *rotation).astype(x_BTD.dtype), v_BTKU, last_BTKH)


def _attend(
    attention: Attention,
    x_B1D: jax.Array,
    caches: tuple[LayerCache, LayerCache],
    step: _Step,
) -> tuple[jax.Array, LayerCache]:
    """Return attention's output for the new token, `[B, 1, D]`, and the new cache with it."""
    config, dtype = attention.config, x_B1D.dtype
    old, new = caches
    q_B1NH, entries = _project(attention, x_B1D, step.cos_sin, step.positions, new.last_BKH)
    new = append(new, jax.tree.map(lambda x: x[:, 0], entries), step.token.step)
    q_B1NH = rotate_queries(config, q_B1NH, step.table, step.cos_sin, step.positions)
    q_BNH = q_B1NH[:, 0].astype(dtype)
    B, K, H, S = old.k_BKHS.shape
    distances = step.distances(S, new.k_BKHS.shape[3])
    q_BKGH = q_BNH.reshape(B, K, -1, H)

    both = [product("BKGH,BKHS->BKGS", q_BKGH, cache.k_BKHS) for cache in (old, new)]
    all_logits = jnp.concatenate(both, -1)
    weights = step.attention_weights(all_logits, distances, config.masked_distances).astype(dtype)
    out_BKGU = jnp.einsum("BKGS,BKSU->BKGU", weights[..., :S], old.v_BKSU)
    out_BKGU += jnp.einsum("BKGE,BKEU->BKGU", weights[..., S:], new.v_BKSU)
    out_B1NU = out_BKGU.reshape(B, 1, -1, out_BKGU.shape[-1])
    return attention.project(out_B1NU), new
