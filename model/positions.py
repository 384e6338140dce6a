"""Cosines and sines of a variant's frequencies, accurate at every position.

A float32 product position x frequency is 0.06 rad off at a million tokens. Here a frequency is a
64-bit fixed-point number of *cycles* per token, stored as two uint32 words. Integer overflow drops
complete cycles and leaves the phase, accurate to 2^-30 of a cycle at any position below 2^31.
Frequencies may be traced: members of a sweep share one compiled program.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model.config import ModelConfig
from model.rotary import repeat_pattern

# Wider than any context: this window masks nothing.
NO_WINDOW = np.iinfo(np.int32).max


class PositionTable(NamedTuple):
    """Everything that layers read about positions. Members of a sweep add a leading axis.

    K is 1 where all heads of every layer rotate alike. R counts the pairs that variants apply to,
    so it leaves out MLA's unrotated pairs.

    Attributes:
      cycles_hi, cycles_lo: uint32 `[L, K, R]`, the fraction of a cycle per token in units of 2^-32
        and 2^-64 cycles.
      logit_scale: float32 `[L, K]`, multiplies q·k besides 1 / sqrt(head_dim).
      unrotated_logit_scale: float32 `[L, K]`, the same for unrotated features (also MLA's).
      query_floor, query_slope: float32 `[L, K]`, log-n scaling (`model.rotary.RotaryTable`).
      window: int32 `[L]`, tokens that a query attends to, itself included.
    """

    cycles_hi: jax.Array | np.ndarray
    cycles_lo: jax.Array | np.ndarray
    logit_scale: jax.Array | np.ndarray
    unrotated_logit_scale: jax.Array | np.ndarray
    query_floor: jax.Array | np.ndarray
    query_slope: jax.Array | np.ndarray
    window: jax.Array | np.ndarray


def position_table(
    config: ModelConfig, context_length: int, row_length: int | None = None
) -> PositionTable:
    """Return the table of `config`, as numpy arrays; see `model.rotary.table` for the arguments."""
    rotary = config.rotary_table(context_length, row_length)
    rotated = rotary.inv_freq[..., : config.rope_head_dim // 2]
    # Two exact steps: a float64 has 53 bits, so its top 32 bits and the rest convert exactly.
    cycles = np.mod(rotated / (2 * np.pi), 1.0) * 2.0**32
    cycles_hi = np.floor(cycles)
    windows = repeat_pattern(config.window, config.num_layers, "num_layers")
    return PositionTable(
        cycles_hi=cycles_hi.astype(np.uint32),
        cycles_lo=np.floor((cycles - cycles_hi) * 2.0**32).astype(np.uint32),
        logit_scale=rotary.logit_scale.astype(np.float32),
        unrotated_logit_scale=rotary.unrotated_logit_scale.astype(np.float32),
        query_floor=rotary.query_floor.astype(np.float32),
        query_slope=rotary.query_slope.astype(np.float32),
        window=np.array([window or NO_WINDOW for window in windows], np.int32),
    )


def stack_tables(tables: Sequence[PositionTable]) -> PositionTable:
    """Stack tables along a new leading axis: of members, or of rows.

    If only some tables differ by head, the others are repeated for every head.
    """
    return PositionTable(
        *(np.stack(np.broadcast_arrays(*leaves)) for leaves in zip(*tables, strict=True))
    )


def freeze_pairs(table: PositionTable, pairs_LKR: np.ndarray) -> PositionTable:
    """Return the table with some pairs unrotated.

    Args:
      table: of one member.
      pairs_LKR: bool, which pairs; `[L, 1, R]` applies to all heads. Further pairs at the end, to
        which variants do not apply (MLA's unrotated pairs), are ignored.
    """
    pairs_LKR = pairs_LKR[..., : table.cycles_hi.shape[-1]]
    hi, lo = (np.where(pairs_LKR, np.uint32(0), x) for x in (table.cycles_hi, table.cycles_lo))
    return table._replace(cycles_hi=hi, cycles_lo=lo)


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
