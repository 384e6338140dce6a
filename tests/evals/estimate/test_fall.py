"""The isotonic crossing against scipy's regression and by hand; runs of bins."""

import numpy as np
import pytest
from scipy import optimize

from ropewalk.evals.estimate import fall
from ropewalk.evals.estimate.trials import Trials


def trials(counts, right, x):
    """Make `Trials` of bins at log2 distances x."""
    distance = np.round(2 ** np.asarray(x, float)).astype(int)
    counts, right = np.asarray(counts, float), np.asarray(right, float)
    return Trials(
        questions=counts, right=right, x=np.asarray(x, float), low=distance, high=distance,
        chance=0.0, seeds=np.arange(1),
    )  # fmt: skip


def crossing(counts, right, x, level):
    data = trials([counts], [right], x)
    return fall.isotonic_crossing(data, np.array([level]), len(x) - 1)[0]


def test_isotonic_crossing_is_that_of_the_regression():
    random = np.random.default_rng(3)
    for _ in range(50):
        counts = random.integers(5, 50, 20)
        right = random.binomial(counts, np.linspace(0.95, 0.1, 20))
        fitted = optimize.isotonic_regression(right / counts, weights=counts, increasing=False).x
        after = int((fitted < 0.499).argmax())  # no block of bins is just as high
        expected = np.interp(0.499, fitted[[after, after - 1]], [after, after - 1])
        assert crossing(counts, right, np.arange(20), 0.499) == pytest.approx(expected)


@pytest.mark.parametrize(("right", "expected"), [([5, 5, 4], np.inf), ([1, 0, 2], -np.inf)])
def test_isotonic_crossing_may_lie_outside(right, expected):
    assert crossing([5, 5, 5], right, [0, 1, 2], 0.5) == expected


@pytest.mark.parametrize(("bottom", "is_dip"), [(0.74, True), (0.76, False)])
def test_a_dip_is_at_least_a_quarter_of_the_range_from_chance_to_ceiling(bottom, is_dip):
    """50 documents with 100 answers a bin, of which all others are right: both are significant."""
    right = np.full((50, 6), 100.0)
    right[:, 2] = 100 * bottom
    data = trials(np.full((50, 6), 100), right, range(6))
    found = fall.dip(data, fall.Ceiling(np.ones(1), error=0.0, low=1.0))
    assert (found is not None) == is_dip
    if found:
        assert found[:3] == pytest.approx((bottom, 2, 1))
