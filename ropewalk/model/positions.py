"""Cosines and sines of a variant's frequencies, accurate at every position.

A float32 product position x frequency is 0.06 rad off at a million tokens. Here a frequency is a
64-bit fixed-point number of *cycles* per token, stored as two uint32 words. Integer overflow drops
complete cycles and leaves the phase, accurate to 2^-30 of a cycle at any position below 2^31.
Frequencies may be traced: members of a sweep share one compiled program.

A learned frequency (`model.rotary.learned`) is the fixed-point number of its start plus a float32
parameter times a power of two. The sum is exact, so its phase is as accurate as any other.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.model import rotary as rotary_lib
from ropewalk.model.config import ModelConfig, PositionTable
from ropewalk.model.rotary.learned import Learned
from ropewalk.model.rotary.recorded import Recorded

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


def add_offsets(
    table: PositionTable, offset_LKR: jax.Array | np.ndarray
) -> tuple[PositionTable, jax.Array]:
    """Add learned offsets to the frequencies of a table, exactly.

    Args:
      table: of one member, with `offset_unit`.
      offset_LKR: float32, the parameter `frequency_offset` of all layers.

    Returns:
      The table, and zeros `[L, K, R]` through which `cos_sin` passes gradients, cycles per token.
    """
    cycles = jnp.asarray(offset_LKR) * jnp.asarray(table.offset_unit, jnp.float32)
    constant = jax.lax.stop_gradient(cycles)
    # A float32 times a power of two, its floor, and the rest are exact, so the magnitude is split
    # without rounding; its negative is the two's complement of both words.
    magnitude = jnp.abs(constant) % 1 * 2.0**32
    hi = jnp.floor(magnitude)
    lo = ((magnitude - hi) * 2.0**32).astype(jnp.uint32)
    hi = hi.astype(jnp.uint32)
    is_negative = constant < 0
    hi = jnp.where(is_negative, ~hi + (lo == 0), hi)
    lo = jnp.where(is_negative, -lo, lo)
    cycles_lo = table.cycles_lo + lo
    cycles_hi = table.cycles_hi + hi + (cycles_lo < lo)
    table = dataclasses.replace(table, cycles_hi=cycles_hi, cycles_lo=cycles_lo)
    return table, cycles - constant


def record_learned(config: ModelConfig, params: dict) -> tuple[ModelConfig, dict]:
    """Replace `learned` by the frequencies in `params`; return a model that trains none.

    Other models are returned as they are.

    Args:
      config: the model.
      params: of one member, in host memory; not modified.
    """
    if not config.learned_frequencies:
        return config, params
    attention = dict(params["blocks"]["attention"])
    offset_LKR = np.asarray(attention.pop("frequency_offset"), np.float64)
    table = config.position_table(2)  # of any context: it decides no frequency
    R = offset_LKR.shape[-1]
    inv_freq_LKR = table.inv_freq[..., :R] + 2 * np.pi * table.offset_unit * offset_LKR
    K = inv_freq_LKR.shape[1]
    layers = rotary_lib.expand_pattern(config.rotary, config.num_layers, config.kv_heads)

    def record(variant: rotary_lib.Rotary, inv_freq_R: np.ndarray) -> rotary_lib.Rotary:
        if not isinstance(variant, Learned):
            return variant
        name, values = rotary_lib.expression(variant), tuple(inv_freq_R.tolist())
        return Recorded(name=name, values=values, log_n=variant.log_n)

    rotary = tuple(
        tuple(record(heads[k % len(heads)], inv_freq_KR[k]) for k in range(K))
        for heads, inv_freq_KR in zip(layers, inv_freq_LKR, strict=True)
    )
    recorded = dataclasses.replace(config, rotary=rotary)
    return recorded, {**params, "blocks": {**params["blocks"], "attention": attention}}


def cos_sin(
    cycles_hi_KR: jax.Array | np.ndarray,
    cycles_lo_KR: jax.Array | np.ndarray,
    positions_BT: jax.Array,
    tangent_KR: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine of positions x frequencies, float32 `[B, T, K, R]`.

    The absolute error is below 1e-6 at every position below 2^31. `tangent_KR` of `add_offsets`
    passes gradients on to learned frequencies: position times the derivative by the angle.
    """
    position = positions_BT[..., None, None].astype(jnp.uint32)
    low, high = position & 0xFFFF, position >> 16
    lo_low, lo_high = cycles_lo_KR & 0xFFFF, cycles_lo_KR >> 16
    # position * (hi + lo 2^-32) modulo 2^32; each of the two dropped carries is 2^-32 of a cycle.
    phase = position * cycles_hi_KR + high * lo_high
    phase += ((high * lo_low) >> 16) + ((low * lo_high) >> 16)
    # As a signed number the phase lies in [-1/2, 1/2) of a cycle, where float32 is most precise.
    angles_BTKR = phase.astype(jnp.int32).astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    if tangent_KR is not None:
        # Zeros: the value stays exact.
        radians_BT11 = np.float32(2 * np.pi) * position.astype(jnp.float32)
        angles_BTKR += radians_BT11 * tangent_KR
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
