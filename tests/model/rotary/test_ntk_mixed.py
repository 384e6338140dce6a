"""Literals: Su's 1 / (β^(m-1) exp(a m^b)), a (d/2)^b = ln k, by mpmath with 40 digits."""

import numpy as np
import pytest

from model.rotary.ntk_fixed import NtkFixed
from model.rotary.ntk_mixed import NtkMixed
from model.rotary.position_interpolation import PositionInterpolation


@pytest.mark.parametrize(
    "parameters, expected",
    [
        (
            {"base": 100.0, "factor": 4.0},  # exponent 0.625, Su's
            [
                0.6852708070148414, 0.31395323018457047, 0.14922997365276925, 0.072378969327432787,
                0.03557850299784162, 0.017661081255681199, 0.0088337810702348264,
                0.004445698525097307,
            ],
        ),
        (
            {"base": 500.0, "factor": 8.0, "exponent": 0.3},
            [
                0.32813009089960459, 0.11663034450899549, 0.044913115319350505,
                0.017961774605488994, 0.0073483841301475255, 0.0030529941874485062,
                0.0012827579907117569, 0.00054363981901024546,
            ],
        ),
    ],
)  # fmt: skip
def test_small_bases(parameters, expected):
    np.testing.assert_allclose(NtkMixed(**parameters).inv_freq(16), expected, rtol=1e-14)


@pytest.mark.parametrize(
    "exponent, limit", [(1.0, NtkFixed), (0.0, PositionInterpolation), (1, NtkFixed)]
)
@pytest.mark.parametrize("base", [100.0, 500.0, 10_000.0])
def test_its_limits_are_other_variants(exponent, limit, base):
    mixed = NtkMixed(base=base, factor=8.0, exponent=exponent).inv_freq(64)
    np.testing.assert_array_equal(mixed, limit(base=base, factor=8.0).inv_freq(64))
