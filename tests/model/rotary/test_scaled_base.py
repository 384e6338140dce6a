"""The bases Gradient published for Llama 3 (May 2024); literals of the law by mpmath."""

import numpy as np
import pytest

from model.rotary.rope import Rope
from model.rotary.scaled_base import ScaledBase


@pytest.mark.parametrize(
    "target, published", [(262_144, 283_461_213), (1_048_576, 3_580_165_449), (8192, 500_000)]
)
def test_the_bases_of_llama_3_gradient(target, published):
    """Their config.json files say 283461213.0 and 3580165449.0."""
    variant = ScaledBase(base=5e5, original_context_length=8192, target_context_length=target)
    assert int(variant.scaled_base) == published


@pytest.mark.parametrize(
    "base, original, target, scaled, pairs",
    [
        (100.0, 512, 1024, 206.55459256164259, [0.51359482965534967, 0.0094263704093775146]),
        (500.0, 1024, 8192, 6321.4207882471541, [0.33488690245583531, 0.00047237525268296794]),
    ],
)
def test_small_bases(base, original, target, scaled, pairs):
    variant = ScaledBase(base=base, original_context_length=original, target_context_length=target)
    assert variant.scaled_base == pytest.approx(scaled, rel=1e-13)
    np.testing.assert_allclose(variant.inv_freq(16)[[1, 7]], pairs, rtol=1e-13)


def test_the_same_target_changes_nothing():
    variant = ScaledBase(base=500.0, original_context_length=512, target_context_length=512)
    np.testing.assert_array_equal(variant.inv_freq(64), Rope(base=500.0).inv_freq(64))
