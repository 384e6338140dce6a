"""The generation cache: keys and values of the tokens so far.

The cache of a layer is a ring: the token at position p is in slot p modulo the number of slots,
which is the layer's window or, without a window, room for the full row. While a program adds
tokens it only reads these caches, because XLA would copy them for every update. New tokens go to
small caches with one slot per step (`new_cache`), and `commit` moves them at the end. S counts the
slots of a cache, E those of a new cache.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ropewalk.model.config import ModelConfig


class LayerCache(NamedTuple):
    """The cache of a layer. Slots are the last axis if a product sums over features.

    Attributes:
      k_BKHS: keys, smeared and rotated.
      v_BKSU: values.
      last_BKH: the newest token's key before smearing; None without `shift_keys`.
    """

    k_BKHS: jax.Array
    v_BKSU: jax.Array
    last_BKH: jax.Array | None


Caches = tuple[LayerCache, ...]


def cache_sizes(config: ModelConfig, room: int) -> tuple[int, ...]:
    """Return the slots of each layer for rows of up to `room` tokens; a window limits them."""
    return tuple(min(window, room) if window else room for window in config.windows)


def fill_cache(entries: tuple, lengths_B: jax.Array, size: int) -> LayerCache:
    """Return the cache after a prompt, with the last `size` tokens of each row.

    Args:
      entries: keys `[B, T, K, H]`, values, and keys before smearing or None, for all tokens.
      lengths_B: number of tokens of each prompt.
      size: number of slots.
    """
    T = entries[0].shape[1]
    last_B1 = (lengths_B - 1)[:, None]
    # Slots before a row's start get its first token, which is masked.
    positions_BS = jnp.maximum(last_B1 - jnp.mod(last_B1 - jnp.arange(size), size), 0)

    def to_slots(x):
        if size >= T:  # slots equal positions; later tokens overwrite those after the prompt
            return jnp.pad(x, [(0, 0), (0, size - T), (0, 0), (0, 0)])
        return jnp.take_along_axis(x, positions_BS[..., None, None], 1)

    k_BSKH, v_BSKU, unsmeared_BSKH = entries
    last = None
    if unsmeared_BSKH is not None:
        last = jnp.take_along_axis(unsmeared_BSKH, last_B1[:, :, None, None], 1)[:, 0]
    return LayerCache(to_slots(k_BSKH).transpose(0, 2, 3, 1), to_slots(v_BSKU).swapaxes(1, 2), last)


def new_cache(caches: Caches, size: int) -> Caches:
    """Return empty caches for the next `size` tokens after those of `caches`."""

    def empty(array: jax.Array, axis: int) -> jax.Array:
        return jnp.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)

    return tuple(_map_slots(empty, cache, cache[2]) for cache in caches)


def append(cache: LayerCache, entries: tuple, step: jax.Array) -> Any:
    """Return a new cache with one more token per row in slot `step`; `entries` has no slot axis."""

    def put(array: jax.Array, entry: jax.Array, axis: int) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(array, entry, step, axis)

    return _map_slots(put, cache, entries[2], entries[:2])


def commit(caches: Caches, new: Caches, starts_B: jax.Array, count: jax.Array) -> Caches:
    """Return the caches with the first `count` tokens of `new`, from positions `starts_B` on."""

    def move(array: jax.Array, added: jax.Array, axis: int) -> jax.Array:
        size, E = array.shape[axis], added.shape[axis]
        slots_BE = jnp.mod(starts_B[:, None] + jnp.arange(E), size)
        # If positions wrap, keep the last one written. Slot `size` does not exist: it is dropped.
        steps_E = jnp.arange(E)
        is_written_E = (steps_E < count) & (steps_E >= count - size)
        slots_BE = jnp.where(is_written_E, slots_BE, size)
        rows_B1 = jnp.arange(array.shape[0])[:, None]
        index = (rows_B1, *[slice(None)] * (axis - 1), slots_BE)
        # Axes of indices that a slice separates come first.
        return array.at[index].set(jnp.moveaxis(added, axis, 1), mode="drop")

    pairs = zip(caches, new, strict=True)
    return tuple(_map_slots(move, cache, added[2], added[:2]) for cache, added in pairs)


def _map_slots(function: Callable, cache: LayerCache, last: Any, *operands: Any) -> LayerCache:
    """Apply `function(array, *operands, axis of slots)` to keys and values; replace the last."""
    k_BKHS, v_BKSU = map(function, cache[:2], *operands, (3, 2))
    return LayerCache(k_BKHS, v_BKSU, last)
