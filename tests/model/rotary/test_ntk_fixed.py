"""Literals: Su's 1 / (λ (β λ)^(m-1)), β = b^(2/16), λ = k^(2/16), by mpmath with 40 digits."""

import numpy as np
import pytest

from model.rotary.ntk_fixed import NtkFixed


@pytest.mark.parametrize(
    "base, factor, expected",
    [
        (
            100.0,
            4.0,
            [
                0.84089641525371454, 0.39763536438352533, 0.18803015465431968, 0.08891397050194614,
                0.042044820762685727, 0.019881768219176267, 0.0094015077327159839,
                0.004445698525097307,
            ],
        ),
        (
            500.0,
            8.0,
            [
                0.77110541270397041, 0.27343635285210529, 0.096961372374342887,
                0.034382801096681605, 0.01219224710114342, 0.0043234083505106543,
                0.0015330939087932598, 0.00054363981901024546,
            ],
        ),
    ],
)  # fmt: skip
def test_small_bases(base, factor, expected):
    inv_freq = NtkFixed(base=base, factor=factor).inv_freq(16)
    np.testing.assert_allclose(inv_freq, expected, rtol=1e-14)
