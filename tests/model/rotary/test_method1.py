"""The paper's Table 4 (arXiv 2405.14591)."""

import numpy as np

from ropewalk.model.rotary.method1 import Method1
from ropewalk.theory.decay import cosine_sum


def test_no_distance_below_30k_has_a_negative_sum():
    """Table 4: 0 below 15k and 0 below 30k."""
    negative = cosine_sum(Method1().inv_freq(128), np.arange(30 * 1024)) < 0
    assert (negative[: 15 * 1024].sum(), negative.sum()) == (0, 0)
