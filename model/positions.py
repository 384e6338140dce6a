"""From a variant's frequencies to cosines and sines that are right at every position.

A float32 product position x frequency is 0.06 rad off at a million tokens. Here a frequency is a
64-bit fixed-point number of *cycles* per token, held as two uint32 words, so that whole cycles fall
off the top by integer overflow and what remains is the phase, to 2^-30 of a cycle at any position
below 2^31. It works for traced frequencies: members of a sweep share one compiled program.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model.config import ModelConfig
from model.rotary import repeated

# Wider than any context: a window of this size masks nothing.
NO_WINDOW = np.iinfo(np.int32).max


class PositionTable(NamedTuple):
    """All that layers know of positions; members of a sweep differ here, and stack in front.

    K is 1 where all heads of every layer rotate alike. R counts the pairs that variants see: here
    MLA's unrotated ones are left out.

    Attributes:
      cycles_hi, cycles_lo: uint32 `[L, K, R]`, the fraction of a cycle per token in units of 2^-32
        and 2^-64 cycles.
      logit_scale: float32 `[L, K]`, multiplies q·k besides 1 / sqrt(head_dim).
      unrotated_logit_scale: float32 `[L, K]`, of features that do not turn (also MLA's).
      query_floor, query_slope: float32 `[L, K]`, log-n scaling (`model.rotary.RotaryTable`).
      window: int32 `[L]`, tokens a query sees, itself included.
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
    """The table of `config`, as numpy arrays: see `model.rotary.table` for the arguments."""
    rotary = config.rotary_table(context_length, row_length)
    rotated = rotary.inv_freq[..., : config.rope_head_dim // 2]
    # Two exact steps: a float64 carries 53 bits, so its top 32 and the rest both convert exactly.
    cycles = np.mod(rotated / (2 * np.pi), 1.0) * 2.0**32
    cycles_hi = np.floor(cycles)
    windows = repeated(config.window, config.num_layers, "num_layers")
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
    """One table with a new leading axis: of members, or of rows that each have their own.

    Where only some of them tell heads apart, the others' rows are written out for every head.
    """
    return PositionTable(
        *(np.stack(np.broadcast_arrays(*leaves)) for leaves in zip(*tables, strict=True))
    )


def frozen(table: PositionTable, pairs_LKR: np.ndarray) -> PositionTable:
    """The table with some pairs unrotated: bool, `[L, K, R]` or, for all heads alike, `[L, 1, R]`.

    Pairs that variants do not see (MLA's unrotated ones) may stand behind the others.
    """
    pairs_LKR = pairs_LKR[..., : table.cycles_hi.shape[-1]]
    hi, lo = (
        np.where(pairs_LKR, np.uint32(0), each) for each in (table.cycles_hi, table.cycles_lo)
    )
    return table._replace(cycles_hi=hi, cycles_lo=lo)


def cos_sin(
    cycles_hi_KR: jax.Array | np.ndarray,
    cycles_lo_KR: jax.Array | np.ndarray,
    positions_BT: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of positions x frequencies, float32 `[B, T, K, R]`.

    Absolute error below 1e-6 for every position below 2^24 (in fact 2^31).
    """
    position = positions_BT[..., None, None].astype(jnp.uint32)
    low, high = position & 0xFFFF, position >> 16
    lo_low, lo_high = cycles_lo_KR & 0xFFFF, cycles_lo_KR >> 16
    # position * (hi + lo 2^-32) modulo 2^32; the two dropped carries are worth 2^-32 cycle each.
    phase = position * cycles_hi_KR + high * lo_high
    phase += ((high * lo_low) >> 16) + ((low * lo_high) >> 16)
    # As a signed number the phase lies in [-half, half) a cycle, where float32 is finest.
    angles_BTKR = phase.astype(jnp.int32).astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    return jnp.cos(angles_BTKR), jnp.sin(angles_BTKR)


def for_heads(x_BTK: jax.Array, num_heads: int) -> jax.Array:
    """What is said of key/value heads, `[B, T, K, ...]`, said of heads that share them.

    K = 1 stands for all heads and stays, to be broadcast.
    """
    K = x_BTK.shape[2]
    return x_BTK if K == 1 else jnp.repeat(x_BTK, num_heads // K, axis=2)


def rotate(x_BTNH: jax.Array, cos_BTKR: jax.Array, sin_BTKR: jax.Array) -> jax.Array:
    """Rotates each pair (x[i], x[i + R]) of every head; float32 inside and out."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    cos, sin = (for_heads(x, x_BTNH.shape[2]) for x in (cos_BTKR, sin_BTKR))
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
