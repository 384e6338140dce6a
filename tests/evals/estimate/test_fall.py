"""The isotonic crossing against scipy's regression and by hand; runs, ceilings and dips."""

import numpy as np
import pytest
from scipy import optimize, stats

from ropewalk.evals.estimate import fall, statistics
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


def test_isotonic_crossing_pools_what_rises_and_interpolates():
    """.9 .4 .6 .1 with weights 10 30 10 10: .4 and .6 pool to .45; .5 lies 8/9 of the way to it."""
    counts, right, x = [10, 30, 10, 10], [9, 12, 6, 1], [3, 4, 5, 6]
    assert crossing(counts, right, x, 0.5) == pytest.approx(3 + 8 / 9)
    # .2 lies 25/35 of the way from .45 at 5 to .1 at 6.
    assert crossing(counts, right, x, 0.2) == pytest.approx(5 + 25 / 35)


def test_isotonic_crossing_is_that_of_the_regression():
    random = np.random.default_rng(3)
    for _ in range(50):
        counts = random.integers(5, 50, 20)
        right = random.binomial(counts, np.linspace(0.95, 0.1, 20))
        fitted = optimize.isotonic_regression(right / counts, weights=counts, increasing=False).x
        after = int((fitted < 0.499).argmax())  # no block of bins is just as high
        expected = np.interp(0.499, fitted[[after, after - 1]], [after, after - 1])
        assert crossing(counts, right, np.arange(20), 0.499) == pytest.approx(expected)


def test_isotonic_crossing_of_a_step_lies_between_its_bins_however_long_the_plateau():
    x = np.arange(40) / 8
    assert crossing(np.full(40, 9), np.where(x < 3, 9, 0), x, 0.5) == pytest.approx(3 - 1 / 16)


@pytest.mark.parametrize(("right", "expected"), [([5, 5, 4], np.inf), ([1, 0, 2], -np.inf)])
def test_isotonic_crossing_may_lie_outside(right, expected):
    assert crossing([5, 5, 5], right, [0, 1, 2], 0.5) == expected


def test_runs_are_of_doubled_lengths_at_every_place():
    runs = Runs.doubling(5)
    result = list(zip(runs.first.tolist(), runs.last.tolist(), strict=True))
    ones, twos, fours = [(i, i) for i in range(5)], [(i, i + 1) for i in range(4)], [(0, 3), (1, 4)]
    assert result == ones + twos + fours


def test_limits_are_wilson_s_for_independent_trials():
    """40 of 50, each a document, and z = 1.96: Wilson's formula gives .6696 to .8876.

    Which documents answer is the design's too: 50 / 49 of the variance.
    """
    right = np.repeat([1.0, 0.0], [40, 10])[:, None]
    result = statistics.limits(np.ones((50, 1)), right, 1.959964)
    assert result.accuracy[0] == 0.8
    assert (result.low[0], result.high[0]) == pytest.approx((0.6696, 0.8876), abs=2e-3)


@pytest.mark.parametrize("right", [0, 1, 57, 60])
def test_exact_limits_are_those_of_the_binomial_test(right):
    """60 documents of one question each, up to 60 / 59 of the variance over documents."""
    column = (np.arange(60) < right)[:, None].astype(float)
    result = statistics.exact_limits(np.ones((60, 1)), column, 0.0006)
    exact = stats.binomtest(right, 60).proportion_ci(1 - 2 * 0.0006, method="exact")
    assert (result.low[0], result.high[0]) == pytest.approx(tuple(exact), abs=2e-3)


def test_documents_that_answer_alike_are_worth_one_trial_each():
    """Ten answers a document, all right or all wrong: as wide as one answer a document."""
    right = np.repeat([1.0, 0.0], [40, 10])[:, None]
    single = statistics.limits(np.ones((50, 1)), right, 1.96)
    ten = statistics.limits(np.full((50, 1), 10.0), 10 * right, 1.96)
    # Up to the 49 degrees of freedom of 50 documents.
    assert ten.high[0] - ten.low[0] == pytest.approx(single.high[0] - single.low[0], rel=0.02)


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


def test_few_trials_make_no_dip():
    counted = documents([1, 1, 0, 1, 1], queries=1, num_documents=3)
    assert fall.dip(counted, fall.Ceiling(np.ones(1), 0.0, 1.0)) is None


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
