"""Digests of arrays: 64 bits of the raw bits and their positions, equal on any mesh.

Each word of an array is mixed with its position and all are added up, modulo 2^32 in each of two
lanes. A sum does not depend on the order, so devices and hosts add their own parts. The
mixing is a bijection of the word, so that any one changed word changes the sum; without it (words
times odd numbers, say) the sign bits of two words could be flipped unseen.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Bytes that fit any device beside a training state.
_AT_ONCE = 2**26
# The golden ratio, which spreads positions.
_SPREAD = np.uint32(0x9E3779B9)


def named(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by name, with dots between levels."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def digests(tree: Any) -> dict[str, str]:
    """Return the digest of each array in `tree` by name, 16 hexadecimal digits.

    All hosts must call this together for arrays over several hosts. Arrays in host memory are sent
    to the default device, one by one if they are large.
    """
    arrays = list(named(tree).values())
    on_devices = all(isinstance(array, jax.Array) for array in arrays)
    if on_devices or sum(array.nbytes for array in arrays) <= _AT_ONCE:
        sums = jax.device_get(_sums(arrays))
    else:
        sums = [jax.device_get(_sums([array]))[0] for array in arrays]
    return {name: f"{a:08x}{b:08x}" for name, (a, b) in zip(named(tree), sums, strict=True)}


@jax.jit
def _sums(arrays: Sequence[jax.Array]) -> list[tuple[jax.Array, jax.Array]]:
    return [_sum(array) for array in arrays]


def _sum(array: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return both lanes, uint32."""
    # https://github.com/skeeto/hash-prospector, then MurmurHash3's finalizer on top.
    first = _mix(_words(array) ^ _positions(array.shape) * _SPREAD, 0x21F0AAAD, 0xD35A2D97)
    second = _mix(first, 0x85EBCA6B, 0xC2B2AE35)
    zero = np.uint32(0)

    def add(left, right):
        return left[0] + right[0], left[1] + right[1]

    # Both sums in one pass over the words, none of which is written to memory.
    return jax.lax.reduce((first, second), (zero, zero), add, tuple(range(array.ndim)))


def _mix(bits: jax.Array, odd: int, other_odd: int) -> jax.Array:
    """Apply a bijection of 32 bits in which each bit depends on all."""
    bits = (bits ^ bits >> 16) * np.uint32(odd)
    bits = (bits ^ bits >> 15) * np.uint32(other_odd)
    return bits ^ bits >> 15


def _words(array: jax.Array) -> jax.Array:
    """Return the raw bits as uint32."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[array.dtype.itemsize]
    return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)


def _positions(shape: Sequence[int]) -> jax.Array:
    """Number the elements of the whole array, row by row, modulo 2^32."""
    positions = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = np.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        positions = positions + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    return positions
