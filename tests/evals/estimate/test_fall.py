"""The isotonic crossing against scipy's regression and by hand; runs, ceilings and dips."""

import numpy as np
import pytest
from scipy import optimize

from ropewalk.evals.estimate import fall
from ropewalk.evals.estimate.fall import Runs
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


def documents(accuracy, *, queries=20, num_documents=20):
    """Make trials with as many right in every document as accuracy says: `[documents, bins]`."""
    shape = num_documents, len(accuracy)
    right = np.broadcast_to(np.round(queries * np.array(accuracy)), shape)
    return trials(np.full(shape, queries), right, np.arange(len(accuracy)) / 2 + 1)


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


def test_runs_are_of_doubled_lengths_at_every_place():
    runs = Runs.doubling(5)
    result = list(zip(runs.first.tolist(), runs.last.tolist(), strict=True))
    ones, twos, fours = [(i, i) for i in range(5)], [(i, i + 1) for i in range(4)], [(0, 3), (1, 4)]
    assert result == ones + twos + fours


@pytest.mark.parametrize(
    ("accuracy", "lowest", "best"),
    [
        pytest.param([1, 1, 0.3, 1, 1], 0.3, 1, id="a hole"),
        pytest.param([1, 0.9, 0.1, 0.1, 0.6, 0.6], 0.1, 0.6, id="a revival"),
        pytest.param([1, 1, 0.85, 1, 1], None, None, id="too shallow to matter"),
        pytest.param([1, 0.9, 0.5, 0.2, 0.1], None, None, id="a fall"),
    ],
)
def test_a_dip_is_accuracy_that_comes_back(accuracy, lowest, best):
    counted = documents(accuracy)
    result = fall.dip(counted, fall.Ceiling(np.ones(1), 0.0, 1.0))
    if lowest is None:
        assert result is None
    else:
        assert result is not None
        assert (result.accuracy, result.revival) == (lowest, best)
        assert result.log_distance < result.log_revival_distance


def test_the_ceiling_is_of_many_bins_and_not_of_lucky_ones():
    """Twenty bins of 30 trials at .6: the best of them has .75 or so, the ceiling has .6."""
    random = np.random.default_rng(5)
    result, best = [], []
    for _ in range(50):
        right = random.binomial(1, 0.6, (30, 20)).astype(float)
        counted = trials(np.ones((30, 20)), right, np.arange(20) / 4)
        summed = trials(np.full((1, 20), 30.0), right.sum(0)[None], counted.x)
        result.append(fall.ceiling(counted, summed).accuracy[0])
        best.append(right.mean(0).max())
    assert np.mean(best) > 0.7
    assert np.mean(result) == pytest.approx(0.6, abs=0.03)
