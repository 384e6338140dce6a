"""Literals: (b k)^(-2i/16) by mpmath with 40 digits."""

import numpy as np
import pytest

from model.rotary.ntk_aware import NtkAware
from model.rotary.ntk_old import NtkOld


@pytest.mark.parametrize(
    "base, factor, expected",
    [
        (
            100.0,
            4.0,
            [
                1.0, 0.47287080450158791, 0.22360679774997897, 0.10573712634405641, 0.05,
                0.023643540225079395, 0.011180339887498948, 0.0052868563172028206,
            ],
        ),
        (
            500.0,
            8.0,
            [
                1.0, 0.35460307805812056, 0.12574334296829354, 0.044588976461874819,
                0.015811388300841897, 0.0056067669598506932, 0.0019881768219176267,
                0.00070501362077580222,
            ],
        ),
    ],
)  # fmt: skip
def test_small_bases(base, factor, expected):
    inv_freq = NtkOld(base=base, factor=factor).inv_freq(16)
    np.testing.assert_allclose(inv_freq, expected, rtol=1e-14)


def test_its_slowest_pair_falls_short_of_the_factor():
    """Against `ntk_aware`, which reaches it: by factor^(2/d), here 8^(1/8)."""
    old = NtkOld(base=500.0, factor=8.0).inv_freq(16)[-1]
    aware = NtkAware(base=500.0, factor=8.0).inv_freq(16)[-1]
    assert old / aware == pytest.approx(1.2968395546510096, rel=1e-14)
