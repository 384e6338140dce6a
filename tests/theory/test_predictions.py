"""Predictions of a rotary table."""

import math

import numpy as np
import pytest

from theory import decay
from theory.predictions import predict


def test_the_arccos_bound_is_where_all_layers_leave_a_half():
    inv_freq = np.array([1.0, 0.1, 0.0])
    for num_layers in (1, 2, 12):
        length = decay.arccos_bound(inv_freq, num_layers)
        assert math.cos(0.1 * length) ** num_layers == pytest.approx(0.5)
        table = np.stack([[inv_freq, 2 * inv_freq]] * num_layers)
        assert predict(table).arccos_bound == length
    # One layer: base >= length / arccos ε.
    assert decay.arccos_bound(np.array([1 / 500]), 1) == pytest.approx(500 * math.acos(0.5))
    assert decay.arccos_bound(np.zeros(4), 3) == np.inf
