"""The estimator against simulated models whose effective context is known."""

import numpy as np
import pytest
from scipy import stats

from ropewalk.evals.estimate import effective_context
from tests.evals.estimate.simulated import CHANCE, interval_octaves, logistic, simulate
from tests.evals.estimate.table import between, flat, step

# An edge at 12, a hole, .6 from a full turn of the slowest pair on, as curves of base 10.
REVIVED = between(45, 256, 0.6, logistic(12, 5))
WEAK_NEXT_DOOR = between(1, 5, 0.1, logistic(60, 6))


def repeat(curve, *, times=60, **kwargs):
    random = np.random.default_rng(20240523)
    return [
        effective_context.estimate(simulate([curve], random, **kwargs), resamples=200, seed=i)
        for i in range(times)
    ]


@pytest.mark.parametrize(
    ("curve", "truth", "tolerance", "kwargs"),
    [
        pytest.param(logistic(17, 20), 17, 0.05, {}, id="a step"),
        pytest.param(logistic(60, 1), 60, 0.25, {}, id="shallow"),
        pytest.param(REVIVED, 12, 0.1, {}, id="revival"),
        pytest.param(logistic(40, 3), 40, 0.2, {"together": 1.0}, id="documents of one luck"),
        pytest.param(logistic(80, 3), 80, 0.15, {"queries": 4, "shortest": 16}, id="as in lines"),
        pytest.param(WEAK_NEXT_DOOR, 60, 0.1, {}, id="weak at 2 to 5, as published models"),
    ],
)
def test_known_contexts_are_found_and_their_intervals_cover(curve, truth, tolerance, kwargs):
    estimates = repeat(curve, **kwargs)
    octaves_off = np.log2([estimate.l50 / truth for estimate in estimates])
    assert {estimate.verdict for estimate in estimates} == {effective_context.MEASURED}
    assert abs(octaves_off.mean()) < tolerance / 2
    assert np.sqrt((octaves_off**2).mean()) < tolerance
    covered = [estimate.ci_low <= truth <= estimate.ci_high for estimate in estimates]
    assert np.mean(covered) >= 0.85
    # Nor may they cover by being wide: a 95% interval is about four standard errors, and up to four
    # times as wide because the answers cannot exclude a short shelf near half-way.
    widths = np.log2([estimate.ci_high / estimate.ci_low for estimate in estimates])
    assert np.median(widths) < 16 * octaves_off.std()


@pytest.mark.long
@pytest.mark.parametrize("seeds", [3, 5])
def test_nine_in_ten_intervals_over_seeds_cover(seeds):
    """A t interval for three seeds and a bootstrap for five, 0.3 octaves around the truth.

    A fifth of the luck of a document's 16 questions is shared; ceiling .9, chance 1/64.
    """
    random = np.random.default_rng(20191204)
    l85 = 40 * (0.15 / 0.85) ** (np.log(2) / 4)  # of the logistic curve simulated
    covered = []
    for time in range(120):
        factors = 2 ** random.normal(0, 0.3, seeds)
        curves = [logistic(40 * factor, 4, ceiling=0.9) for factor in factors]
        data = simulate(curves, random, documents=32, together=np.sqrt(0.2))
        result = effective_context.estimate(data, resamples=200, seed=time)
        covered.append(
            (result.ci_low <= 40 <= result.ci_high, result.l85_low <= l85 <= result.l85_high)
        )
    of_l50, of_l85 = np.mean(covered, axis=0)
    assert of_l50 >= 0.90
    # So near the ceiling few documents tell less than a bootstrap of them knows.
    assert of_l85 >= 0.85


def test_a_shelf_above_half_way_makes_no_crossing():
    """Twenty noisy bins of .6, some of them below .5: documents decide whether that is beyond."""
    for draw in range(10):
        random = np.random.default_rng(draw)
        data = simulate([between(12, 256, 0.6)], random, queries=64)
        result = effective_context.estimate(data, resamples=20)
        assert (result.verdict, result.dips) == ("UNDETERMINED", False)
        assert result.ci_low < 256 and result.ci_high == np.inf
        assert result.worst.accuracy < 0.55 and result.worst.ci_high > 0.6
    data = simulate([between(12, 256, 0.7)], random, queries=64, documents=400)
    assert effective_context.estimate(data, resamples=20).verdict == "> 256"


@pytest.mark.parametrize(("bottom", "high"), [(0.1, 33), (0.4, 35)])
def test_a_known_hole_is_found_at_28(bottom, high):
    """Right everywhere else. One to .40 is not surely below half-way: the interval says where."""
    data = simulate([between(28, high, bottom)], np.random.default_rng(31), queries=64)
    result = effective_context.estimate(data)
    verdict = "MEASURED" if bottom == 0.1 else "UNDETERMINED"
    assert (result.verdict, result.dips) == (verdict, True)
    assert 21.9 < result.ci_low <= 28
    assert 28 <= result.worst.low <= result.worst.high <= high
    assert result.worst.ci_low < bottom < result.worst.ci_high
    assert result.dip == pytest.approx(bottom, abs=0.1) and 28 <= result.dip_distance <= high
    if verdict == "MEASURED":
        assert result.l50 == pytest.approx(27.5, rel=0.04)


@pytest.mark.parametrize(
    ("curve", "verdict", "expected"),
    [
        # All right up to 4, then .45 to 200: half-way is crossed where the shelf begins.
        (lambda m: np.where(m < 4, 1.0, np.where(m < 200, 0.45, CHANCE)), "MEASURED", {"l50": 4}),
        # .3 beyond the edge: half-way to chance is where the step is.
        (between(40, 256, 0.3), "MEASURED", {"l50": 40, "floor": 0.3}),
        # Accuracy comes back: a dip, which does not move the edge.
        (REVIVED, "MEASURED", {"dips": True, "l50": 12, "revival": 0.6}),
        (flat(0.4), "NOT_LEARNED", {"ceiling": 0.4, "l50": np.nan}),
        (flat(0.97), "> 256", {"ceiling": 0.97, "ci_low": 256, "ci_high": np.inf}),
        # A dip at short distances is a fall.
        (between(5, 8, 0.2, step(60)), "MEASURED", {"dips": True, "ci_low": 4, "dip": 0.2}),
        # Blind nearby, right from 8 on: a dip and no fall, but not above half-way everywhere.
        (between(1, 7, 0), "UNDETERMINED", {"dips": True, "dip": 0}),
        # Fifteen percent of the way from .98 to chance: accuracy .8353.
        (logistic(40, 6, 0.98), "MEASURED", {"l85": 40 * (0.15 / 0.85) ** (np.log(2) / 6)}),
        # Right next door only, as models without key smearing after a million tokens.
        (between(1, 3, 0.6, flat(0.02)), "LOW_CEILING", {"ceiling": 0.6}),
        (between(1, 3, 0.99, flat(0.02)), "MEASURED", {"ceiling": 0.99}),
    ],
)
def test_verdicts_and_numbers_of_known_curves(curve, verdict, expected):
    data = simulate([curve], np.random.default_rng(3), documents=256, queries=32)
    result = effective_context.estimate(data)
    assert result.verdict == verdict
    assert ("ceiling 0.6" in str(result)) == (verdict == "LOW_CEILING")
    assert str(result).endswith("dips") == result.dips == expected.get("dips", False)
    for name, value in expected.items():
        assert getattr(result, name) == pytest.approx(value, rel=0.06, abs=0.05, nan_ok=True), name


@pytest.mark.parametrize("edge", [3, 236])
def test_an_interval_that_the_answers_close_is_not_open(edge):
    """The first bin, 2, is surely above half-way; the last, 235 to 250, surely below."""
    data = simulate([step(edge)] * 2, np.random.default_rng(3), longest=250, queries=32)
    result = effective_context.estimate(data, resamples=200)
    assert 2 <= result.ci_low <= edge - 1 < edge <= result.ci_high <= 250.001


@pytest.mark.parametrize("documents", [1, 2, 4, 7, 12])
def test_few_documents_never_read_as_beyond(documents):
    """Every third distance beyond 30 is right, and all before; L50 is 30."""
    for draw in range(12):
        random = np.random.default_rng(draw)
        data = simulate([between(31, 256, 0.35)], random, documents=documents, queries=21)
        result = effective_context.estimate(data, resamples=50)
        assert not result.verdict.startswith(">")
        assert result.verdict == "TOO_FEW_ANSWERS" or result.ci_low <= 30.5 <= result.ci_high
        if result.verdict == "TOO_FEW_ANSWERS":
            assert f"{result.documents_needed} documents are enough" in str(result)
            assert np.isnan(result.l50) and result.documents_needed > documents
        if documents < 8:
            assert result.mean_text.endswith("[too few documents]")
            assert np.isnan([result.worst.ci_low, *(bin_.ci_low for bin_ in result.bins)]).all()


def test_the_documents_that_are_said_to_be_enough_are_enough():
    """Right at every distance: with the number named, the verdict is beyond."""
    for draw in range(10):
        random = np.random.default_rng(draw)
        few = effective_context.estimate(simulate([np.ones_like], random, documents=4))
        data = simulate([np.ones_like], random, documents=few.documents_needed)
        assert effective_context.estimate(data, resamples=20).verdict == "> 256"
        assert few.documents_needed <= 256


@pytest.mark.parametrize(
    ("counts", "verdict", "low"),
    [
        # Of 64 the last distance has four questions, all wrong, an octave beyond the others.
        ({4: (64, 1), 8: (32, 1), 16: (24, 1), 32: (20, 1), 64: (4, 0)}, "TOO_FEW_ANSWERS", None),
        # A needle at four depths: .4 at the start of the context, half an octave farther.
        ({50: (64, 1), 200: (64, 1), 350: (64, 1), 500: (64, 0.4)}, "UNDETERMINED", 350),
    ],
)
def test_right_answers_before_a_gap_say_nothing_of_those_after_it(counts, verdict, low):
    """Windows once spanned the gap, and both were "> 64" and "> 500"."""
    shares = [(m, number, i / number < share) for m, (number, share) in counts.items()
              for i in range(number)]  # fmt: skip
    distance, _, right = map(np.array, zip(*shares, strict=True))
    data = simulate([np.ones_like], np.random.default_rng(0), documents=len(distance), queries=1)
    document = np.concatenate([np.arange(number) for number, _ in counts.values()])
    data |= {"distance": distance, "document": document, "exact_match": right}
    result = effective_context.estimate(data, resamples=50)
    assert result.verdict == verdict
    if low:  # the fall may lie anywhere in the gap
        assert low <= result.ci_low < low * 2 ** (1 / 8) and np.isinf(result.ci_high)


@pytest.mark.filterwarnings("error")
def test_a_seed_with_few_documents_is_left_out_of_a_pool_and_counted():
    """Two seeds with 64 documents and one with 4: the estimate of the two."""
    random = np.random.default_rng(6)
    data = simulate([logistic(40, 6)] * 3, random)
    poor = (data["seed"] == 2) & (data["document"] >= 4)
    pool = {name: column[~poor] for name, column in data.items()}
    two = {name: column[data["seed"] < 2] for name, column in data.items()}
    result, expected = effective_context.estimate(pool), effective_context.estimate(two)
    for name in ("l50", "worst", "mean_accuracy"):
        assert getattr(result, name) == getattr(expected, name)
    assert (result.num_seeds, result.num_too_few) == (3, 1)
    assert result.seeds[2].verdict == "TOO_FEW_ANSWERS"
    assert str(result) == f"{expected}, without 1 of 3 seeds: too few answers"
    # Of equal documents, a seed that falls needs fewest: it alone would be `38 [29, 45]`.
    curves = [np.ones_like, np.ones_like, logistic(40, 20)]
    data = simulate(curves, np.random.default_rng(1), documents=16)
    assert effective_context.estimate(data, resamples=20).verdict == "TOO_FEW_ANSWERS"


def test_a_mean_of_one_has_an_interval_that_excludes_one():
    """All of 8 x 21 answers at 168 distances are right: Wilson's lower end is n / (n + t^2)."""
    data = simulate([np.ones_like], np.random.default_rng(8), documents=8, queries=21)
    result = effective_context.estimate(data | {"distance": np.arange(2, 170)})
    t = 2.364624  # 97.5% of Student's distribution with 7 degrees of freedom
    assert result.mean_accuracy_low == pytest.approx(168 / (168 + t**2), abs=1e-4)


def test_a_distance_of_0_counts_as_1():
    """A task of a user may ask for the id before; five seeds of such rows raised an error."""
    data = simulate([flat(0.5)] * 5, np.random.default_rng(1), documents=16, longest=2)
    result = effective_context.estimate(data | {"distance": 0 * data["distance"]}, resamples=50)
    assert result.longest == 1 and result.mean_accuracy_low < 0.5 < result.mean_accuracy_high


def test_few_distances_leave_a_sharp_fall_sharp():
    """A step at 40 with 64 lags: an octave has nine of them. Resamples without the first lags
    beyond 40 used to open the interval up to the longest distance in nine of ten draws.
    """
    covered, octaves = [], []
    for draw in range(40):
        random, edge = np.random.default_rng(draw), 12 + 2 * draw
        data = simulate([np.ones_like], random, documents=64, queries=16)
        # As of lagcopy and passkey: all answers of a document are at one distance up to 125.
        distance = np.repeat((126 ** random.random(64)).astype(int), 16)
        right = random.random(len(distance)) < step(edge)(distance)
        data |= {"distance": distance, "exact_match": right}
        result = effective_context.estimate(data, resamples=200)
        if result.verdict != "TOO_FEW_ANSWERS":  # a few of the lags are beyond 80
            covered.append(result.ci_low <= edge and edge - 1 <= result.ci_high)
            octaves.append(interval_octaves(result))
    assert np.mean(covered) >= 0.95 and len(covered) > 32
    assert np.median(octaves) < 0.6


def test_documents_that_are_right_or_wrong_as_a_whole_are_one_trial_each():
    """Every document asks at one lag, and .3 of those from 40 on are right. 16 answers that are
    alike once were 16 trials: 9 of 40 curves had a dip, and 4 of 40 worst bins held the truth.
    """
    dips, covered = [], []
    for draw in range(40):
        random = np.random.default_rng(draw)
        data = simulate([np.ones_like], random, documents=64, queries=16)
        distance = (126 ** random.random(64)).astype(int)
        right = random.random(64) < between(40, 125, 0.3)(distance)
        data |= {"distance": np.repeat(distance, 16), "exact_match": np.repeat(right, 16)}
        result = effective_context.estimate(data, resamples=20)
        dips.append(result.dips)
        covered.append(result.worst.ci_low <= 0.3 <= result.worst.ci_high)
    assert np.mean(dips) <= 0.1 and np.mean(covered) >= 0.95


def test_few_documents_at_long_distances_never_read_as_beyond():
    """Two documents have all questions from 60 on, all right, as if their luck were shared."""
    random = np.random.default_rng(4)
    data = simulate([np.ones_like], random, documents=64, queries=64, longest=59)
    data["distance"][:128] = random.integers(60, 126, 128)
    result = effective_context.estimate(data, resamples=20)
    assert result.verdict == "TOO_FEW_ANSWERS" and result.documents_needed > 128


def test_the_worst_bin_has_exact_limits_over_all_bins():
    """40 documents ask at 2, 3, 4 and 5 each; 36 are right at 4. Wilson's upper end is .969."""
    columns = simulate([np.ones_like], np.random.default_rng(12), documents=40, queries=4)
    columns["distance"] = np.tile([2, 3, 4, 5], 40)
    columns["exact_match"] = (columns["distance"] != 4) | (columns["document"] >= 4)
    worst = effective_context.estimate(columns).worst
    exact = stats.binomtest(36, 40).proportion_ci(1 - 2 * 0.025 / 4, method="exact")
    assert (worst.low, worst.high, worst.accuracy) == (4, 4, 0.9)
    assert (worst.ci_low, worst.ci_high) == pytest.approx(tuple(exact), abs=3e-3)


def test_seeds_that_differ_widen_the_interval():
    random = np.random.default_rng(9)
    same = effective_context.estimate(simulate([logistic(40, 4)] * 3, random))
    curves = [logistic(l50, 4) for l50 in (25, 40, 64)]
    spread = effective_context.estimate(simulate(curves, random))
    assert spread.l50 == pytest.approx(40, rel=0.1)
    # t with 2 degrees of freedom: 4.303 standard errors of log2 (25, 40, 64).
    half = 4.303 * np.std(np.log2([25, 40, 64]), ddof=1) / np.sqrt(3)
    assert np.log2(spread.ci_high / spread.ci_low) / 2 == pytest.approx(half, rel=0.25)
    assert np.log2(same.ci_high / same.ci_low) < 0.6 * half
    assert (spread.num_seeds, spread.num_learned, spread.num_documents) == (3, 3, 64)


def test_seeds_of_which_only_one_falls_have_no_mean():
    """The mean of 40 and two distances beyond 256 is more than 138, once measured as 138."""
    data = simulate([np.ones_like, np.ones_like, step(40)], np.random.default_rng(2))
    result = effective_context.estimate(data, resamples=50)
    assert [seed.verdict for seed in result.seeds] == ["> 256", "> 256", "MEASURED"]
    assert result.verdict == "UNDETERMINED" and np.isnan(result.l50)
    assert str(result).endswith("and > 256") and result.ci_low < 138


def test_the_luck_of_documents_that_all_seeds_share_is_not_averaged_out():
    """Five seeds that answer alike are worth one: the same rows five times over."""
    random = np.random.default_rng(28)
    single = simulate([logistic(40, 4)], random, together=1.0)
    five = {name: np.tile(column, 5) for name, column in single.items()}
    five["seed"] = np.repeat(np.arange(5), len(single["seed"]))
    alone, copied = (effective_context.estimate(data) for data in (single, five))
    assert copied.l50 == pytest.approx(alone.l50)
    assert interval_octaves(copied) > 0.9 * interval_octaves(alone)


def test_a_seed_that_did_not_learn_is_left_out_and_counted():
    random, good, bad = np.random.default_rng(11), logistic(40, 4), flat(CHANCE)
    estimate = effective_context.estimate(simulate([good, good, bad], random))
    assert (estimate.num_seeds, estimate.num_learned) == (3, 2)
    assert estimate.l50 == pytest.approx(40, rel=0.15)
    assert str(estimate).endswith(", without 1 of 3 seeds: NOT_LEARNED")
    most_bad = effective_context.estimate(simulate([good, bad, bad], random))
    assert most_bad.verdict == effective_context.NOT_LEARNED


def test_bins_are_half_octaves_with_wilson_intervals():
    columns = simulate([np.ones_like], np.random.default_rng(12), documents=40, queries=1)
    columns["distance"][:] = np.repeat([2, 3, 4, 5], 10)
    columns["exact_match"][:] = False
    columns["exact_match"][[0, 20, 21, 30]] = True
    shown = effective_context.estimate(columns).bins
    assert [(row.low, row.high) for row in shown] == [(2, 2), (3, 3), (4, 5)]
    assert [(row.trials, row.accuracy) for row in shown] == [(10, 0.1), (10, 0.0), (20, 0.15)]
    assert shown[2].distance == pytest.approx(np.sqrt(20))
    # Wilson's interval for 0 of 10: 0 to z^2 / (10 + z^2) with z = 1.959964.
    assert (shown[1].ci_low, shown[1].ci_high) == (0, pytest.approx(0.277533, abs=1e-6))


@pytest.mark.parametrize(("right", "verdict"), [(1.0, "> 256"), (0.5, "NOT_LEARNED")])
def test_a_task_of_two_choices_can_be_learned(right, verdict):
    """A guess is right in half of the answers, so no ceiling is above chance + 0.5."""
    data = simulate([flat(right)], np.random.default_rng(3), documents=256)
    data["chance"] = np.full(len(data["chance"]), 0.5)
    assert effective_context.estimate(data, resamples=20).verdict == verdict
