"""Literals: b^(-2i/d) by mpmath with 40 digits."""

import numpy as np
import pytest

from model.rotary.rope import Rope


def test_the_published_base_in_sixteen_dimensions():
    """Eight frequencies from 1 to 10^-3.5, each sqrt(10) times slower."""
    np.testing.assert_allclose(
        Rope(base=10_000.0).inv_freq(16),
        [
            1.0, 0.31622776601683793, 0.1, 0.031622776601683793, 0.01, 0.0031622776601683793,
            0.001, 0.00031622776601683793,
        ],
        rtol=1e-15,
    )  # fmt: skip


def test_base_500_in_eight_dimensions():
    np.testing.assert_allclose(
        Rope(base=500.0).inv_freq(8),
        [1.0, 0.21147425268811282, 0.044721359549995794, 0.0094574160900317581],
        rtol=1e-15,
    )


@pytest.mark.parametrize(
    "base, selected",
    [
        (1e4, {0: 1.0, 1: 0.86596432336006535, 32: 0.01, 63: 0.00011547819846894582}),
        (5e5, {0: 1.0, 1: 0.8146172338565447, 32: 0.001414213562373095, 63: 2.4551407911316089e-6}),
    ],
)
def test_heads_of_128(base, selected):
    inv_freq = Rope(base=base).inv_freq(128)
    for index, expected in selected.items():
        assert inv_freq[index] == pytest.approx(expected, rel=1e-14)


def test_a_quarter_of_32_features_turns_as_eight_do():
    expected = [1.0, 0.1, 0.01, 0.001] + 12 * [0.0]
    partial = Rope(base=10_000.0, rotary_fraction=0.25).inv_freq(32)
    np.testing.assert_allclose(partial, expected, rtol=1e-15)


def test_a_fraction_rounds_down_to_whole_pairs():
    """0.4 of 10 features is 4; 0.3 of 10 is 3, of which one pair turns."""
    assert np.count_nonzero(Rope(base=100.0, rotary_fraction=0.4).inv_freq(10)) == 2
    assert np.count_nonzero(Rope(base=100.0, rotary_fraction=0.3).inv_freq(10)) == 1
    # 0.7 * 20 is 13.999... in binary: it means 14.
    assert np.count_nonzero(Rope(base=100.0, rotary_fraction=0.7).inv_freq(20)) == 7


def test_the_base_has_no_default():
    with pytest.raises(TypeError, match="base"):
        Rope()  # type: ignore[call-arg]
