"""From a schedule's frequencies to cosines and sines that are right at every position.

A float32 product position x frequency is 0.06 rad off at a million tokens. Here a frequency is a
64-bit fixed-point number of *turns* per token, held as two uint32 words, so that whole turns fall
off the top by integer overflow and what remains is the phase, to 2^-30 of a turn at any position
below 2^31. It works for traced frequencies: members of a sweep share one compiled program.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model.config import ModelConfig
from model.rotary import over_layers

# Wider than any context: a window of this size masks nothing.
NO_WINDOW = np.iinfo(np.int32).max


class PositionTable(NamedTuple):
    """All that layers know of positions; members of a sweep differ here, and stack in front.

    Attributes:
      turns_hi, turns_lo: uint32 `[L, R]`, the fraction of a turn per token in units of 2^-32 and
        2^-64 turns.
      logit_scale: float32 `[L]`, multiplies q·k besides 1 / sqrt(head_dim).
      resting_logit_scale: float32 `[L]`, the same for MLA's features that never turn.
      query_floor, query_slope: float32 `[L]`, log-n scaling (`model.rotary.RotaryTable`).
      window: int32 `[L]`, tokens a query sees, itself included.
    """

    turns_hi: jax.Array | np.ndarray
    turns_lo: jax.Array | np.ndarray
    logit_scale: jax.Array | np.ndarray
    resting_logit_scale: jax.Array | np.ndarray
    query_floor: jax.Array | np.ndarray
    query_slope: jax.Array | np.ndarray
    window: jax.Array | np.ndarray


def position_table(
    config: ModelConfig, context_length: int, row_length: int | None = None
) -> PositionTable:
    """The table of `config`, as numpy arrays: see `model.rotary.table` for the arguments."""
    rotary = config.rotary_table(context_length, row_length)
    # Two exact steps: a float64 carries 53 bits, so its top 32 and the rest both convert exactly.
    turns = np.mod(rotary.inv_freq / (2 * np.pi), 1.0) * 2.0**32
    turns_hi = np.floor(turns)
    windows = over_layers(config.window, config.num_layers)
    return PositionTable(
        turns_hi=turns_hi.astype(np.uint32),
        turns_lo=np.floor((turns - turns_hi) * 2.0**32).astype(np.uint32),
        logit_scale=rotary.logit_scale.astype(np.float32),
        resting_logit_scale=rotary.resting_logit_scale.astype(np.float32),
        query_floor=rotary.query_floor.astype(np.float32),
        query_slope=rotary.query_slope.astype(np.float32),
        window=np.array([window or NO_WINDOW for window in windows], np.int32),
    )


def cos_sin(
    turns_hi_R: jax.Array | np.ndarray,
    turns_lo_R: jax.Array | np.ndarray,
    positions_BT: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of positions x frequencies, float32 `[B, T, R]`.

    Absolute error below 1e-6 for every position below 2^24 (in fact 2^31).
    """
    position = positions_BT[..., None].astype(jnp.uint32)
    low, high = position & 0xFFFF, position >> 16
    lo_low, lo_high = turns_lo_R & 0xFFFF, turns_lo_R >> 16
    # position * (hi + lo 2^-32) modulo 2^32; the two dropped carries are worth 2^-32 turn each.
    phase = position * turns_hi_R + high * lo_high
    phase += ((high * lo_low) >> 16) + ((low * lo_high) >> 16)
    # As a signed number the phase lies in [-half, half) a turn, where float32 is finest.
    angles_BTR = phase.astype(jnp.int32).astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    return jnp.cos(angles_BTR), jnp.sin(angles_BTR)


def rotate(x_BTNH: jax.Array, cos_BTR: jax.Array, sin_BTR: jax.Array) -> jax.Array:
    """Turns each pair (x[i], x[i + R]) of every head; float32 inside and out."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos_BTR[:, :, None, :], sin_BTR[:, :, None, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
