"""Literals: transformers 5.23.0, `rope_type="llama3"` (float32, so 1e-6 relative)."""

import numpy as np
import pytest

from model.rotary.llama3 import Llama3
from model.rotary.ntk_by_parts import NtkByParts

# Pairs of 128 features that span the three bands, at Llama 3.1's own parameters.
LLAMA_3_1 = {
    0: 1.0, 20: 0.0165604409, 28: 0.00321144611, 29: 0.00216657063, 30: 0.00137189368,
    31: 0.00085675146, 32: 0.000524846022, 33: 0.00031269365, 34: 0.000178507791,
    35: 9.55621217e-05, 36: 7.78465546e-05, 40: 3.42810235e-05, 63: 3.06892588e-07,
}  # fmt: skip
BASE_100 = {
    0: 1.0, 8: 0.316227764, 16: 0.0427511781, 20: 0.00941721443, 21: 0.00608709408,
    22: 0.00527120614, 24: 0.00395284733, 28: 0.00222284929, 31: 0.00144347746,
}  # fmt: skip
# Eight or more turns kept, two or fewer divided.
BASE_500 = {
    0: 1.0, 4: 0.21147424, 5: 0.143407494, 6: 0.0964634195, 7: 0.0473923385, 8: 0.0238503385,
    9: 0.0123623647, 10: 0.0066306321, 11: 0.00369044906, 12: 0.00236435398, 15: 0.000737319351,
}  # fmt: skip


@pytest.mark.parametrize(
    "variant, head_dim, expected",
    [
        (Llama3(base=5e5, factor=8.0, original_context_length=8192), 128, LLAMA_3_1),
        (Llama3(base=100.0, factor=8.0, original_context_length=128), 64, BASE_100),
        (
            Llama3(
                base=500.0,
                factor=4.0,
                original_context_length=1024,
                low_freq_factor=2.0,
                high_freq_factor=16.0,
            ),
            32,
            BASE_500,
        ),
    ],
)
def test_frequencies_are_those_of_transformers(variant, head_dim, expected):
    inv_freq = variant.inv_freq(head_dim)
    for pair, value in expected.items():
        assert inv_freq[pair] == pytest.approx(value, rel=1e-6), pair
    assert variant.logit_scale == 1.0


@pytest.mark.parametrize("base", [100.0, 500.0, 5e5])
def test_it_is_ntk_by_parts_between_one_turn_and_four(base):
    stretch = {"base": base, "factor": 8.0, "original_context_length": 2048}
    np.testing.assert_allclose(
        Llama3(**stretch).inv_freq(128),
        NtkByParts(**stretch, beta_slow=1.0, beta_fast=4.0).inv_freq(128),
        rtol=1e-14,
    )
