"""Partial rotation, and the base; test_frequencies.py has the numbers."""

import numpy as np
import pytest

from ropewalk.model.rotary.rope import Rope


def test_a_fraction_rounds_down_to_whole_pairs():
    """0.4 of 10 features is 4; 0.3 of 10 is 3, of which one pair turns."""
    assert np.count_nonzero(Rope(base=100.0, rotary_fraction=0.4).inv_freq(10)) == 2
    assert np.count_nonzero(Rope(base=100.0, rotary_fraction=0.3).inv_freq(10)) == 1
    # 0.7 * 20 is 13.999... in binary: it means 14.
    assert np.count_nonzero(Rope(base=100.0, rotary_fraction=0.7).inv_freq(20)) == 7


def test_the_base_has_no_default():
    with pytest.raises(TypeError, match="base"):
        Rope()  # type: ignore[call-arg]
