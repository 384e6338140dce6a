"""Lines through simulated bases of a known slope, and what other code says of the same data."""

import numpy as np
import pytest
from scipy import integrate, stats

from evals.estimate import effective_context, regression
from evals.estimate.regression import Point
from tests.evals.simulated import logistic, simulate

BASES = 2.0 ** np.array([3, 4, 5.5, 7, 9])


def points(x, y, *, seed=0, limit=np.inf, name="theory"):
    """One point a base: L50 of y tokens where the predictor says x, "> limit" beyond."""
    return [
        Point(
            base=f"rope(base={length:g})",
            seed=seed,
            low=min(l50, limit),
            high=l50 if l50 < limit else np.inf,
            predictors={name: length},
        )
        for length, l50 in zip(x, y, strict=True)
    ]


def noisy(random, slope=1.0, offset=1.0, spread=0.3, x=BASES):
    return 2 ** (offset + slope * np.log2(x) + random.normal(0, spread, len(x)))


def test_one_seed_uncensored_is_least_squares():
    y = noisy(np.random.default_rng(1))
    found = regression.regress(points(BASES, y), "theory")
    line = stats.linregress(np.log2(BASES), np.log2(y))
    t = stats.t.ppf(0.975, 3)
    assert found.slope == pytest.approx(line.slope, abs=1e-6)
    assert found.slope_high - found.slope == pytest.approx(t * line.stderr, rel=1e-4)
    assert found.slope - found.slope_low == pytest.approx(t * line.stderr, rel=1e-4)
    assert found.intercept == pytest.approx(line.intercept, abs=1e-6)
    half = t * line.intercept_stderr
    assert found.intercept_high - found.intercept == pytest.approx(half, rel=1e-4)
    octaves = np.log2(y / BASES)
    mean = stats.ttest_1samp(octaves, 0).confidence_interval()
    assert found.offset == pytest.approx(octaves.mean(), abs=1e-6)
    assert (found.offset_low, found.offset_high) == pytest.approx((mean.low, mean.high), abs=1e-4)
    assert (found.num_points, found.num_censored, found.num_bases) == (5, 0, 5)


def test_the_left_out_error_is_that_of_five_refits():
    y = noisy(np.random.default_rng(2))
    missed = []
    for out in range(5):
        kept = np.arange(5) != out
        line = np.polyfit(np.log2(BASES[kept]), np.log2(y[kept]), 1)
        missed.append(np.log2(y[out]) - np.polyval(line, np.log2(BASES[out])))
    found = regression.regress(points(BASES, y), "theory")
    assert found.error == pytest.approx(np.sqrt(np.mean(np.square(missed))), rel=1e-6)


def test_an_exact_line_is_found_with_its_slope_and_no_width():
    found = regression.regress(points(BASES, 3 * BASES**0.5), "theory")
    assert found.slope == pytest.approx(0.5, abs=1e-6)
    assert found.intercept == pytest.approx(np.log2(3), abs=1e-6)
    assert found.slope_high - found.slope_low < 0.01 and found.error < 1e-6


def test_a_balanced_design_is_least_squares_on_the_means_of_bases():
    """Crossed seeds of every base: what seeds share leaves the slope, by textbook anova."""
    random = np.random.default_rng(3)
    base_luck, seed_luck = random.normal(0, 0.3, 5), random.normal(0, 0.4, 4)
    log_y = 1 + np.log2(BASES) + base_luck + seed_luck[:, None] + random.normal(0, 0.1, (4, 5))
    rows = [point for s in range(4) for point in points(BASES, 2 ** log_y[s], seed=s)]
    found = regression.regress(rows, "theory")
    line = stats.linregress(np.log2(BASES), log_y.mean(0))
    assert found.slope == pytest.approx(line.slope, abs=1e-4)
    half = stats.t.ppf(0.975, 3) * line.stderr
    assert found.slope_high - found.slope == pytest.approx(half, rel=0.02)


def test_a_censored_point_counts_by_the_probability_of_its_side():
    """The optimum, and the integral over slope and intercept, of the likelihood written out."""
    x, y = BASES, np.array([18, 30, 100, 230, 700.0])
    found, _, loss = regression._newton_full(
        np.stack([np.ones(5), np.log2(x)], 1),
        [],
        np.log2(np.minimum(y, 200)),
        np.array([0, 0, 0, 1, 1]),
        np.array([0.3]),
    )

    def likelihood(slope, intercept):
        off = (np.log2(np.minimum(y, 200)) - intercept - slope * np.log2(x)) / 0.3
        densities = stats.norm.pdf(off[:3]) / 0.3
        return densities.prod() * stats.norm.sf(off[3:]).prod()

    peak = likelihood(found[1], found[0])
    for step in ([0.01, 0], [-0.01, 0], [0, 0.03], [0, -0.03]):
        assert likelihood(found[1] + step[0], found[0] + step[1]) < peak
    volume, _ = integrate.dblquad(
        likelihood, found[0] - 6, found[0] + 6, found[1] - 1.5, found[1] + 1.5, epsrel=1e-4
    )
    # The 2 pi of a Gaussian integral over two coefficients is a constant and left out.
    assert loss == pytest.approx(-np.log(volume / (2 * np.pi)), abs=0.1)


def test_dropping_censored_points_would_flatten_the_line_and_keeping_them_does_not():
    """At 12 lengths of 8 seeds, with L50 twice the predictor and nothing seen beyond 200."""
    random = np.random.default_rng(5)
    x = 2 ** np.linspace(3, 8, 12)
    every, kept = [], []
    for seed in range(8):
        of_seed = points(x, noisy(random, spread=0.6, x=x), seed=seed, limit=200)
        every += of_seed
        kept += [point for point in of_seed if point.high < np.inf]
    found = regression.regress(every, "theory")
    assert found.num_censored == len(every) - len(kept) > 15
    assert found.slope == pytest.approx(1, abs=0.1)
    assert found.slope_low < 1 < found.slope_high
    assert regression.regress(kept, "theory").slope < found.slope - 0.05


def test_what_lies_below_the_shortest_distance_counts_too():
    x, y = BASES, np.array([4, 8, 22.6, 64, 256.0])  # half of each
    below = [
        Point(base=f"{a:g}", seed=0, low=0.0 if b < 10 else b, high=max(b, 10), predictors={"p": a})
        for a, b in zip(x, y, strict=True)
    ]
    found = regression.regress(below, "p")
    assert found.num_censored == 2 and found.num_bases == 3
    assert found.slope == pytest.approx(1, abs=0.02)
    assert found.offset == pytest.approx(-1, abs=0.05)
    assert found.error < 0.02  # what is predicted below 10 is not missed


def test_points_that_say_nothing_are_left_out():
    y = noisy(np.random.default_rng(6))
    good = points(BASES, y)
    nothing = [
        Point(base="nope", seed=0, low=300, high=np.inf, predictors={"theory": None}),
        Point(base="still", seed=0, low=300, high=300, predictors={"theory": np.inf}),
        Point(base="flat", seed=0, low=0, high=np.inf, predictors={"theory": 50}),
    ]
    assert regression.regress(good + nothing, "theory") == regression.regress(good, "theory")


def test_the_best_predictor_comes_first_and_unmeasured_ones_are_left_out():
    random = np.random.default_rng(7)
    y = noisy(random, offset=0, spread=0.1)
    rows = [
        Point(
            base=f"{length:g}",
            seed=0,
            low=l50,
            high=l50,
            predictors={"other": length * wrong, "right": length, "empirical_zero": None},
        )
        for length, l50, wrong in zip(BASES, y, [1, 5, 0.3, 4, 1], strict=True)
    ]
    rows.append(Point(base="one", seed=0, low=9, high=9, predictors={"right": 9.0}))
    found = regression.compare(rows)
    assert [each.predictor for each in found] == ["right", "other"]
    assert [each.num_points for each in found] == [5, 5]
    assert found[0].error < 0.3 < found[1].error
    assert found[0].slope_low < 1 < found[0].slope_high
    assert found[0].offset_low < 0 < found[0].offset_high


def test_too_few_bases_are_refused():
    y = noisy(np.random.default_rng(8))
    with pytest.raises(ValueError, match=r"three bases that differ in it .*, got 2"):
        regression.regress(points(BASES[:2], y[:2]), "theory")
    same = points(np.full(5, 46.0), y)
    with pytest.raises(ValueError, match="got 1"):
        regression.regress(same, "theory")
    with pytest.raises(ValueError, match="got 1"):
        regression.regress(points(BASES, np.sort(y), limit=np.sort(y)[1]), "theory")


@pytest.mark.parametrize(
    ("curve", "low", "high"),
    [
        pytest.param(np.ones_like, 256, np.inf, id="never falls"),
        pytest.param(logistic(40, 3, 1 / 64), 0, np.inf, id="not learned"),
        pytest.param(lambda m: np.where(m < 8, 0.0, 1.0), 0, 2, id="falls before the first"),
    ],
)
def test_points_of_estimates(curve, low, high):
    found = effective_context.estimate(simulate([curve], np.random.default_rng(9)), resamples=50)
    point = Point.of(found, base="rope(base=10)", seed=3, predictors={"first_negative": 5})
    assert (point.low, point.high, point.seed) == (low, high, 3)


def test_the_point_of_a_measured_estimate_is_its_l50():
    rows = simulate([logistic(40, 5)], np.random.default_rng(10))
    found = effective_context.estimate(rows, resamples=50)
    point = Point.of(found, base="rope(base=10)", seed=0, predictors={})
    assert point.low == point.high == found.l50
