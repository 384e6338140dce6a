"""Lines through simulated bases, and what scipy and refitting say of the same data."""

# pyright: reportAttributeAccessIssue=false
# (scipy's results have names that only running shows)

import dataclasses

import numpy as np
import pytest
from scipy import stats

from ropewalk.evals.estimate import regression
from ropewalk.evals.estimate.regression import Point

BASES = 2.0 ** np.array([3, 4, 5.5, 7, 9])


def points(x, y, *, limit=np.inf):
    """One point a base: L50 of y tokens where the predictor says x, not measured beyond `limit`."""
    y = np.where(np.less(y, limit), y, np.nan)
    return [
        Point(base=f"rope(base={length:g})", l50=l50, predictors={"theory": length})
        for length, l50 in zip(x, y, strict=True)
    ]


def noisy(random):
    return 2 * BASES * 2 ** random.normal(0, 0.3, len(BASES))


def assert_close(result, expected):
    for name, value in expected.items():
        assert result[name] == (value if name == "predictor" else pytest.approx(value))


def test_the_line_and_its_intervals_are_those_of_scipy():
    y = noisy(np.random.default_rng(1))
    result = regression.regress(points(BASES, y), "theory")
    line = stats.linregress(np.log2(BASES), np.log2(y))
    t = stats.t.ppf(0.975, 3)
    for interval, value, error in (
        (result.slope, line.slope, line.stderr),
        (result.intercept, line.intercept, line.intercept_stderr),
    ):
        assert interval == pytest.approx((value, value - t * error, value + t * error))
    assert (result.num_bases, result.num_censored) == (5, 0)


def test_the_left_out_error_is_that_of_five_refits():
    y = noisy(np.random.default_rng(2))
    missed = []
    for out in range(5):
        mask = np.arange(5) != out
        line = np.polyfit(np.log2(BASES[mask]), np.log2(y[mask]), 1)
        missed.append(np.log2(y[out]) - np.polyval(line, np.log2(BASES[out])))
    result = regression.regress(points(BASES, y), "theory")
    assert result.error == pytest.approx(np.sqrt(np.mean(np.square(missed))))


def test_a_base_is_one_point_however_many_seeds_it_has():
    """The mean of its seeds' logarithms: 8 and 32 are 16; the interval has the bases' freedom."""
    seeds = np.array([[8, 30, 90, 200, 900], [32, 30, 40, 300, 700.0]])
    rows = [point for y in seeds for point in points(BASES, y)]
    means = points(BASES, np.exp(np.log(seeds).mean(0)))
    expected = vars(regression.regress(means, "theory"))
    assert_close(vars(regression.regress(rows, "theory")), expected)
    # A base is no heavier for a third seed.
    more = rows + points(BASES[:1], [16])
    assert_close(vars(regression.regress(more, "theory")), expected)


def test_bases_beyond_what_was_asked_are_counted_and_not_fitted():
    y = noisy(np.random.default_rng(5))
    expected = regression.regress(points(BASES[:4], y[:4]), "theory")
    result = regression.regress(points(BASES, y, limit=y[4]), "theory")
    assert (result.num_bases, result.num_censored) == (4, 1)
    assert result == dataclasses.replace(expected, num_censored=1)
    # One seed of two suffices: their mean is not known.
    half = points(BASES, y) + points(BASES, y, limit=y[4])
    assert_close(vars(regression.regress(half, "theory")), vars(result))
