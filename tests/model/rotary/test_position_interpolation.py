"""Literals: b^(-2i/d) / s by mpmath; transformers 5.23 `rope_type="linear"` (float32)."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("factor", [0.0, 0.99, -1.0, float("inf"), float("nan")])
def test_the_factor_must_stretch(factor):
    with pytest.raises(ValueError, match="factor must be a finite number of at least 1, got"):
        PositionInterpolation(base=10_000.0, factor=factor)
