"""Cosines and sines against float64, wherever a context may reach."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.model.config import PositionTable
from ropewalk.model.positions import cos_sin
from ropewalk.model.rotary.explicit import Explicit
from ropewalk.model.rotary.rope import Rope
from tests.models import small_model

LIMIT = 2**24


def places() -> np.ndarray:
    """Random positions, both ends, and both sides of 2^16, where the product changes words."""
    chosen = np.random.default_rng(0).integers(0, LIMIT, size=24)
    edges = [0, 1, 2, 2**16 - 1, 2**16, 2**16 + 1, 2**23, LIMIT - 2, LIMIT - 1]
    return np.concatenate([chosen, edges]).astype(np.int32)


BASES = [5.0, 10.0, 500.0, 1e4, 5e5, 1e9]


def test_error_stays_below_a_millionth():
    """Members of a sweep have one program, with traced frequencies."""
    positions_T = places()
    tables = [small_model(head_dim=128, rotary=Rope(base=b)).position_table(512) for b in BASES]
    stacked = jax.tree.map(lambda *x: np.stack(x), *tables)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def members(table: PositionTable, positions_BT):
        return cos_sin(table.cycles_hi[0], table.cycles_lo[0], positions_BT)

    cos_MBTKR, sin_MBTKR = members(stacked, positions_T[None])
    for index, base in enumerate(BASES):
        # The product is below 2^24 radians, and its float64 less than 2e-9 off.
        angles_TR = np.outer(positions_T, Rope(base=base).inv_freq(128))
        assert cos_MBTKR.dtype == sin_MBTKR.dtype == jnp.float32
        assert np.abs(cos_MBTKR[index, 0, :, 0] - np.cos(angles_TR)).max() <= 1e-6
        assert np.abs(sin_MBTKR[index, 0, :, 0] - np.sin(angles_TR)).max() <= 1e-6


def test_frequencies_above_a_cycle_wrap():
    """100 radians per token are 15 whole cycles and a rest."""
    table = small_model(head_dim=4, rotary=Explicit(values=(100.0,) * 2)).position_table(512)
    cos_BTKR, _ = cos_sin(table.cycles_hi[0], table.cycles_lo[0], np.array([[1, 2]], np.int32))
    expected = [0.8623188722876839, 0.4871876750070059]  # cos 100, cos 200
    np.testing.assert_allclose(cos_BTKR[0, :, 0, 0], expected, atol=1e-6)
