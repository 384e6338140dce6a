"""Literals: transformers 5.23.0, `rope_type="longrope"`, long list (float32, 1e-6 relative)."""

import dataclasses

import numpy as np
import pytest

from model.rotary.longrope import Longrope
from model.rotary.rope import Rope

FACTORS = (1.0, 1.05, 1.25, 2.0, 3.5, 6.0, 10.0, 16.0)
VARIANT = Longrope(
    base=10_000.0,
    pair_factors=FACTORS,
    original_context_length=4096,
    target_context_length=65_536,
)
REFERENCE = {
    100.0: [
        1.0, 0.535563171, 0.252982229, 0.0889139697, 0.0285714287, 0.00937235542, 0.00316227786,
        0.00111142464,
    ],
    500.0: [
        1.0, 0.437965035, 0.169179395, 0.0486246236, 0.0127775325, 0.00342761865, 0.000945741544,
        0.00027181991,
    ],
    10_000.0: [
        1.0, 0.301169306, 0.0799999982, 0.0158113893, 0.00285714283, 0.00052704633, 9.99999975e-05,
        1.97642366e-05,
    ],
}  # fmt: skip


@pytest.mark.parametrize("base", REFERENCE)
def test_frequencies_are_those_of_transformers(base):
    inv_freq = dataclasses.replace(VARIANT, base=base).inv_freq(16)
    np.testing.assert_allclose(inv_freq, REFERENCE[base], rtol=1e-6)


def test_the_attention_factor_applies_to_queries_and_to_keys():
    """transformers gives 1.15470..., the sqrt of 4/3, for 16 times 4096 = 2^12 tokens."""
    assert VARIANT.logit_scale == pytest.approx(1.1547005383792517**2, rel=1e-14)
    short = dataclasses.replace(VARIANT, target_context_length=4096)
    assert short.logit_scale == 1.0


def test_factors_of_one_change_nothing():
    ones = dataclasses.replace(VARIANT, pair_factors=32 * (1.0,))
    np.testing.assert_array_equal(ones.inv_freq(64), Rope(base=10_000.0).inv_freq(64))
