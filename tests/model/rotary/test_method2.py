"""The paper's Table 4 (arXiv 2405.14591)."""

import numpy as np
import pytest

from ropewalk.model.rotary import parse
from ropewalk.model.rotary.method2 import Method2
from ropewalk.theory.decay import cosine_sum


def test_the_sum_is_negative_at_as_many_distances_as_in_the_paper():
    """Table 4: 97 below 15k and 2554 below 30k; a k is 1024."""
    negative = cosine_sum(Method2().inv_freq(128), np.arange(30 * 1024)) < 0
    assert (negative[: 15 * 1024].sum(), negative.sum()) == (97, 2554)


def test_the_pair_that_both_rules_meet_at_is_the_same_share_of_a_smaller_head():
    """22 of 32 pairs: those from there on are interpolated, that before is not yet."""
    inv_freq = Method2().inv_freq(64)
    plain = parse("rope(base=1e4)").inv_freq(64)
    np.testing.assert_allclose(plain[22:] / inv_freq[22:], np.full(10, 8.0), rtol=1e-14)
    assert plain[21] / inv_freq[21] == pytest.approx(7.2784757959773342, rel=1e-14)  # 8^(21/22)
