"""The isotonic check against values worked out by hand, and the fit against another optimiser."""

import numpy as np
import pytest
from scipy import optimize

from evals.estimate import fit
from evals.estimate.trials import Trials


def trials(asked, right, x, *, chance=0.0):
    """Of one seed, four fine bins a bin."""
    numbers = np.arange(len(x)) // 4
    bins = np.unique(numbers)
    return Trials(
        asked=np.asarray(asked, float),
        right=np.asarray(right, float),
        x=np.asarray(x, float),
        bins=bins,
        in_bin=np.equal.outer(numbers, bins).astype(float),
        chance=chance,
    )


def test_isotonic_crossing_pools_what_rises_and_interpolates():
    """.9 .4 .6 .1 with weights 10 30 10 10: .4 and .6 pool to .45; .5 lies 8/9 of the way to it."""
    counted = trials([10, 30, 10, 10], [9, 12, 6, 1], [3, 4, 5, 6])
    assert fit.isotonic_crossing(counted, 0.5) == pytest.approx(3 + 8 / 9)
    # .2 lies 25/35 of the way from .45 at 5 to .1 at 6.
    assert fit.isotonic_crossing(counted, 0.2) == pytest.approx(5 + 25 / 35)


def test_isotonic_crossing_of_a_step_lies_between_its_bins_however_long_the_plateau():
    x = np.arange(40) / 8
    counted = trials(np.full(40, 9), np.where(x < 3, 9, 0), x)
    assert fit.isotonic_crossing(counted, 0.5) == pytest.approx(3 - 1 / 16)


def test_isotonic_crossing_passes_over_bins_without_questions():
    counted = trials([4, 0, 4], [4, 0, 0], [2, 3, 6])
    assert fit.isotonic_crossing(counted, 0.5) == pytest.approx(4)


@pytest.mark.parametrize(("right", "expected"), [([5, 5, 4], np.inf), ([1, 0, 2], -np.inf)])
def test_isotonic_crossing_may_lie_outside(right, expected):
    assert fit.isotonic_crossing(trials([5, 5, 5], right, [0, 1, 2]), 0.5) == expected


@pytest.mark.parametrize(
    ("way", "asked", "last"),
    [
        pytest.param([1, 1, 0.4, 0.2, 0.4, 0.8, 0.3], 50, 3, id="a narrow dip"),
        pytest.param([1, 0.4, 0.2, 0.6, 0.1, 0.9], 50, 2, id="the first of two"),
        pytest.param([1, 0.8, 0.45, 0.4, 0.6, 0.3], 50, 5, id="a rise that may be noise"),
        pytest.param([1, 0.8, 0.6, 1, 0.3, 0.1], 50, 5, id="a dip above half-way"),
        pytest.param([1, 0.4, 0.1, 0.3, 0.45, 0.45], 50, 5, id="back, but not above half-way"),
        pytest.param([1, 0.4, 0.1, 0.8], [50, 50, 50, 9], 3, id="a revival of few trials"),
        pytest.param([1, 0.0, 1, 1], [50, 9, 50, 50], 3, id="a dip of few trials"),
    ],
)
def test_the_fit_ends_in_the_dip_before_a_revival(way, asked, last):
    asked = np.broadcast_to(asked, len(way))
    assert fit._lowest_before_revival(np.array(way), asked) == last


def test_the_fit_maximises_the_likelihood_stated():
    """A general optimiser, given the model and the priors as they are documented, agrees."""
    random = np.random.default_rng(1)
    x = np.arange(2, 9, 0.125)
    chance = 1 / 64
    truth = chance + (0.8 - chance) / (1 + np.exp(2.5 * (x - 5)))
    hits = random.binomial(40, truth).astype(float)
    counted = trials(np.full((1, len(x)), 40), hits[None], x, chance=chance)
    found = fit.first_fall(counted)
    fitted = np.arange(len(x)) // 4 <= found.last_bin[0]
    (bin_hits,) = counted.by_bin()[1] / 160
    observed = found.observed_ceiling[0]
    first_below = np.flatnonzero(bin_hits < chance + 0.5 * (observed - chance))[0]
    share = (observed - chance) / (1 - chance)
    prior = np.array([np.log(share / (1 - share)), np.log(4), x[4 * first_below :][:4].mean()])
    prior[2] -= 0.25

    def loss(parameters):
        to_ceiling, log_slope, log_l50 = parameters
        ceiling = 1 / (1 + np.exp(-to_ceiling))
        p = chance + (1 - chance) * ceiling / (1 + np.exp(np.exp(log_slope) * (x - log_l50)))
        value = (hits * np.log(p) + (40 - hits) * np.log(1 - p))[fitted].sum()
        return 0.5 * (((parameters - prior) / [1, 1, 8]) ** 2).sum() - value

    best = optimize.minimize(loss, prior, method="Nelder-Mead", options={"xatol": 1e-6}).x
    assert found.log_l50[0] == pytest.approx(best[2], abs=2e-3)
    # ln(.85 / .15) = 1.7346: what lies between half-way and .85 of the way.
    assert found.log_l85[0] == pytest.approx(best[2] - 1.7346 / np.exp(best[1]), abs=5e-3)
    ceiling = chance + (1 - chance) / (1 + np.exp(-best[0]))
    assert found.ceiling[0] == pytest.approx(ceiling, abs=2e-3)
