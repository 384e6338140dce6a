"""Literals: b^(-2i/d) / s by mpmath; transformers 5.23 `rope_type="linear"` (float32)."""

import numpy as np

from model.rotary.position_interpolation import PositionInterpolation


def test_every_pair_is_slower_by_the_factor():
    np.testing.assert_allclose(
        PositionInterpolation(base=10_000.0, factor=3.0).inv_freq(8),
        [1 / 3, 0.033333333333333333, 0.0033333333333333333, 0.00033333333333333333],
        rtol=1e-15,
    )


def test_as_transformers_does():
    inv_freq = PositionInterpolation(base=10_000.0, factor=4.0).inv_freq(128)
    np.testing.assert_allclose(
        inv_freq[[0, 1, 32, 63]], [0.25, 0.216491088, 0.00249999994, 2.88695483e-05], rtol=1e-6
    )
