"""Literals: transformers 5.23.0, `rope_type="proportional"` (float32, so 1e-6 relative)."""

import numpy as np
import pytest

from model.rotary.p_rope import PRope
from model.rotary.rope import Rope


def test_a_quarter_of_a_head_of_128():
    inv_freq = PRope(base=10_000.0, rotary_fraction=0.25).inv_freq(128)
    np.testing.assert_allclose(
        inv_freq[[0, 1, 8, 15]], [1.0, 0.865964353, 0.316227764, 0.115478203], rtol=1e-6
    )
    np.testing.assert_array_equal(inv_freq[16:], np.zeros(48))


@pytest.mark.parametrize(
    "base, fraction, turning",
    [
        (100.0, 0.5, [1.0, 0.562341332, 0.316227764, 0.177827939]),
        (500.0, 0.75, [1.0, 0.459863275, 0.21147424, 0.0972492471, 0.0447213612, 0.0205657128]),
    ],
)
def test_small_bases(base, fraction, turning):
    inv_freq = PRope(base=base, rotary_fraction=fraction).inv_freq(16)
    np.testing.assert_allclose(inv_freq, turning + (8 - len(turning)) * [0.0], rtol=1e-6)


def test_the_slowest_pair_that_turns_is_faster_than_under_partial_rotation():
    """A quarter of 128 at base 10,000: wavelengths end at 54 tokens, under `rope` at 35,333."""
    for variant, wavelength in ((PRope, 54.4), (Rope, 35_333)):
        inv_freq = variant(base=10_000.0, rotary_fraction=0.25).inv_freq(128)
        assert 2 * np.pi / inv_freq[15] == pytest.approx(wavelength, rel=1e-3)


def test_a_whole_head_is_plain_rope():
    np.testing.assert_array_equal(PRope(base=500.0).inv_freq(64), Rope(base=500.0).inv_freq(64))
