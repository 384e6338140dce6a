"""Cosines and sines of a variant's frequencies, accurate at every position.

A float32 product position x frequency is 0.06 rad off at a million tokens. Here a frequency is a
64-bit fixed-point number of *cycles* per token, stored as two uint32 words. Integer overflow drops
complete cycles and leaves the phase, accurate to 2^-30 of a cycle at any position below 2^31.
Frequencies may be traced: members of a sweep share one compiled program.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.model.config import PositionTable

# The exact frequencies stay on the host. (In JAX 0.7, `register_dataclass` cannot leave one out.)
_ARRAYS = [x.name for x in dataclasses.fields(PositionTable) if x.name != "inv_freq"]
jax.tree_util.register_pytree_with_keys(
    PositionTable,
    lambda table: ([(jax.tree_util.GetAttrKey(x), getattr(table, x)) for x in _ARRAYS], None),
    lambda _, arrays: PositionTable(**dict(zip(_ARRAYS, arrays, strict=True))),
)


def stack_tables(tables: Sequence[PositionTable]) -> PositionTable:
    """Stack tables along a new leading axis: of members, or of rows.

    If only some tables differ by head, the others are repeated for every head.
    """
    return jax.tree.map(lambda *leaves: np.stack(np.broadcast_arrays(*leaves)), *tables)


def freeze_pairs(table: PositionTable, pairs_LKR: np.ndarray) -> PositionTable:
    """Return the table with some pairs unrotated.

    Args:
      table: of one member.
      pairs_LKR: bool, which pairs; `[L, 1, R]` applies to all heads. Further pairs at the end, to
        which variants do not apply (MLA's unrotated pairs), are ignored.
    """
    pairs_LKR = pairs_LKR[..., : table.cycles_hi.shape[-1]]
    # 2^-64 cycles per token make no angle, and keep the pair's logit scale, that of rotated pairs.
    rotates_LKR = (table.cycles_hi | table.cycles_lo) > 0
    lo = np.where(pairs_LKR, rotates_LKR, table.cycles_lo).astype(np.uint32)
    hi = np.where(pairs_LKR, np.uint32(0), table.cycles_hi)
    return dataclasses.replace(table, cycles_hi=hi, cycles_lo=lo)


def cos_sin(
    cycles_hi_KR: jax.Array | np.ndarray,
    cycles_lo_KR: jax.Array | np.ndarray,
    positions_BT: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine of positions x frequencies, float32 `[B, T, K, R]`.

    The absolute error is below 1e-6 at every position below 2^31.
    """
    position = positions_BT[..., None, None].astype(jnp.uint32)
    low, high = position & 0xFFFF, position >> 16
    lo_low, lo_high = cycles_lo_KR & 0xFFFF, cycles_lo_KR >> 16
    # position * (hi + lo 2^-32) modulo 2^32; each of the two dropped carries is 2^-32 of a cycle.
    phase = position * cycles_hi_KR + high * lo_high
    phase += ((high * lo_low) >> 16) + ((low * lo_high) >> 16)
    # As a signed number the phase lies in [-1/2, 1/2) of a cycle, where float32 is most precise.
    angles_BTKR = phase.astype(jnp.int32).astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    return jnp.cos(angles_BTKR), jnp.sin(angles_BTKR)


def repeat_heads(x_BTK: jax.Array, num_heads: int) -> jax.Array:
    """Repeat values of key/value heads, `[B, T, K, ...]`, for the heads that share them.

    K = 1 applies to all heads and is left for broadcasting.
    """
    K = x_BTK.shape[2]
    return x_BTK if K == 1 else jnp.repeat(x_BTK, num_heads // K, axis=2)


def rotate(x_BTNH: jax.Array, cos_BTKR: jax.Array, sin_BTKR: jax.Array) -> jax.Array:
    """Rotate each pair (x[i], x[i + R]) of every head, in float32."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    cos, sin = (repeat_heads(x, x_BTNH.shape[2]) for x in (cos_BTKR, sin_BTKR))
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
