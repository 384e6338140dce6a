"""Measurements of language models, on rows whose values are known."""

import dataclasses

import numpy as np
import pytest

from ropewalk import studies
from ropewalk.evals.estimate.bins import fine_bin_number
from ropewalk.studies.card import HELD, NOT_MEASURED, UNDECIDED
from ropewalk.studies.language_model import law, measures
from ropewalk.studies.report import judge
from ropewalk.studies.rows import Answers, Losses, Row
from tests.in_process import call
from tests.studies.test_rows import row

CARDS = studies.load_cards("language_model")


def losses(distances, nll_DF, tokens=10):
    """Losses at these distances, nats per token of each document."""
    nll_DF = np.atleast_2d(np.array(nll_DF, float))
    tokens_DF = np.broadcast_to(np.array(tokens), nll_DF.shape)
    fine = fine_bin_number(np.array(distances))
    return Losses(np.arange(len(nll_DF)), fine, tokens_DF, nll_DF * tokens_DF)


def make_row(tasks: dict[str, Losses], member: str = "base=10", seed: int = 0, **changes) -> Row:
    """Row with losses of these tasks."""
    answers = tuple(
        Answers(measurement="whole", task=name, length=512, value=0, losses=item)
        for name, item in tasks.items()
    )
    return row(card="language_model", member=member, seed=seed, answers=answers, **changes)


def copies(gain_of_lag, documents=40):
    """Losses of natural text and its control whose difference at each lag is known."""
    distances = [lag - 1 for lag in gain_of_lag]
    natural = np.full((documents, len(distances)), 3.0) + np.arange(documents)[:, None] / 10
    gain = np.array(list(gain_of_lag.values()))
    names = [f"lagcopy(text={text},passage=32,crops=16)" for text in ("natural", "control")]
    return dict(zip(names, (losses(distances, x) for x in (natural, natural + gain)), strict=True))


def sum_losses(*arguments):
    return measures.losses(make_row({"perplexity": losses(*arguments)}), 512)


def sum_gains(gain_of_lag):
    return measures.gains(make_row(copies(gain_of_lag)))


def value(statistic):
    return measures.over_seeds([statistic])


def test_a_mean_weighs_tokens_and_a_difference_is_paired():
    tokens = [[10], [30]]
    run = sum_losses([10], [[2.0], [4.0]], tokens)
    reference = sum_losses([10], [[1.0], [3.9]], tokens)
    assert value(measures.measure_mean(run)).value == pytest.approx((10 * 2 + 30 * 4) / 40)
    difference = value(measures.measure_difference(run, reference))
    assert difference.value == pytest.approx((10 * 1 + 30 * 0.1) / 40)
    # Two documents: the interval spans their two differences.
    assert (difference.low, difference.high) == pytest.approx((0.1, 1.0))
    assert (difference.n, difference.unit) == (2, "documents")


def test_runs_of_other_documents_are_refused():
    run, other = sum_losses([10], [[2.0], [2.0]]), sum_losses([10], [[2.0], [2.0]], [[10], [11]])
    with pytest.raises(ValueError, match="other documents"):
        measures.measure_difference(run, other)


def test_the_half_lag_lies_where_the_ratio_crosses_one_half():
    """Ratios .7 and .3 in two half octaves: one half is in the middle of their centers' logs."""
    reference = sum_gains({4: 1, 17: 1, 70: 1, 100: 1, 200: 1})
    run = sum_gains({4: 0, 17: 0.9, 70: 0.7, 100: 0.3, 200: 0.2})
    # Distance 69 lies in 64 ... 90, and 99 in 91 ... 127.
    expected = (64 * 90 * 91 * 127) ** 0.25
    assert value(measures.measure_half_lag(run, reference))[:3] == pytest.approx([expected] * 3)
    assert value(measures.measure_ratio(run, reference)).value == pytest.approx(2.1 / 5)
    assert value(measures.measure_half_lag(reference, reference)).value == np.inf


def test_the_reach_of_a_run_is_relative_to_what_it_copies_from_nearby():
    """40% of the reference up to 16 tokens, then .7 and .3 of that."""
    reference = sum_gains({9: 1, 17: 1, 70: 1, 100: 1})
    run = sum_gains({9: 0.4, 17: 0.4, 70: 0.28, 100: 0.12})
    reach = value(measures.measure_half_lag(run, reference, nearby=16))
    assert reach[:3] == pytest.approx([(64 * 90 * 91 * 127) ** 0.25] * 3)
    assert value(measures.measure_half_lag(run, reference)).value < 16
    everywhere = sum_gains({9: 0.4, 17: 0.4, 70: 0.4, 100: 0.4})
    assert value(measures.measure_half_lag(everywhere, reference, nearby=16)).value == np.inf


def test_a_ratio_of_reaches_counts_a_reach_beyond_all_lags_as_the_last_half_octave():
    """One crosses in the middle of two half octaves, the other nowhere up to 256 ... 362 tokens."""
    reference = sum_gains({9: 1, 17: 1, 70: 1, 100: 1, 300: 1})
    run = sum_gains({9: 0.4, 17: 0.4, 70: 0.28, 100: 0.12, 300: 0.1})
    everywhere = sum_gains({9: 0.8, 17: 0.8, 70: 0.8, 100: 0.8, 300: 0.8})
    expected = (64 * 90 * 91 * 127) ** 0.25 / (256 * 362) ** 0.5
    four = run, reference, everywhere, reference
    ratio = value(measures.measure_reach_ratio(*four, nearby=48))
    assert ratio[:3] == pytest.approx([expected] * 3)
    too_low = value(measures.measure_reach_ratio(*four, nearby=48, least_level=0.5))
    assert too_low.mark(0, 1) == "nothing to measure"
    floor = sum_gains({9: 0.05, 17: 0.05, 70: 0.05})  # no reach beyond all lags: it copies nothing
    nothing = value(measures.measure_half_lag(floor, floor, nearby=48, least_level=0.5))
    assert nothing.mark(0, 1) == "nothing to measure"
    reach = value(measures.measure_half_lag(run, reference, nearby=48, least_level=0.39))
    assert reach.value == pytest.approx((64 * 90 * 91 * 127) ** 0.25)


def test_a_cost_that_the_level_of_copying_says_leaves_nothing():
    """A level of .5 says .307 - .164; of a cost of .2 nats .057 are left."""
    parts = ({"perplexity": losses([10], [[nats]] * 40)} for nats in (3.2, 3.0))
    runs = [
        make_row(part | copies({9: gain, 12: gain}), member)
        for part, gain, member in zip(parts, (0.5, 1), ("base=10", "base=10000"), strict=True)
    ]
    one_seed = dataclasses.replace(CARDS["language_model"], seeds=(0,))
    cost = measures.unexplained_cost("base=10")(one_seed, runs)
    assert cost[:3] == pytest.approx([0.2 - (0.307 - 0.328 * 0.5)] * 3)


def make_runs(reach_of_base):
    """Runs of four seeds that reach so far, and cost .3 - .3 times their level."""
    runs = []
    for seed in range(4):
        for base in law.GROWING:
            level = base / 1000 - seed / 100
            numbers = level, reach_of_base(base), 0.3 - 0.3 * level
            parts = [measures.Resampled(np.full(2001, number), 99) for number in numbers]
            card = "language_model_lag_seeds" if seed else "language_model_lags"
            runs.append(law.Run(card, seed, base, *parts))
    return runs


def test_reaches_that_grow_as_the_square_root_of_the_base_fit_it_alone():
    """Lengths of the theories at bases 100, 300 and 1,000 are those of another program."""
    lengths = {
        name: [length(base) for base in law.GROWING] for name, length in law.THEORIES.items()
    }
    assert lengths["B_m < 0"] == [46, 102, 197]
    assert lengths["B_m below .25 of its start"] == [16, 33, 53]
    assert lengths["quarter period of the slowest pair"] == pytest.approx(
        [136, 394.3, 1265.8], 1e-3
    )
    runs = make_runs(lambda base: 10 * base**0.5)
    line = list(law.growth_lines(runs))[-1]
    assert (line["base 100"], line["exponent"]) == ("100 [100, 100]", "0.5 [0.5, 0.5]")
    assert line["growth"] == "3.16 [3.16, 3.16]"
    errors = {line["theory"]: line["one factor"] for line in law.theory_lines(runs)}
    octaves = np.log2([46, 102, 197]) - np.log2([10, 300**0.5, 1000**0.5])
    assert float(errors["B_m < 0"]) == pytest.approx(octaves.std(), abs=0.005)
    assert errors["square root of the base"] == "0.00"
    said = {line["theory"]: line["forecast of seed 0"] for line in law.theory_lines(runs)}
    assert said["square root of the base"] == "100, 173, 316"


def test_a_cost_that_falls_with_the_level():
    fit = law.fit_cost(make_runs(lambda base: base))
    assert fit == pytest.approx((-0.3, 0.3, -1, 0))


def test_regained_share():
    reference, before, run = (sum_gains({200: gain}) for gain in (1.0, 0.2, 0.8))
    assert value(measures.measure_regained(run, before, reference)).value == pytest.approx(0.75)
    flat = sum_gains({200: 0.95})  # .05 nats are missing: the floor of models that do not copy
    assert (
        value(measures.measure_regained(run, flat, reference)).mark(0.5, 9) == "nothing to measure"
    )


def test_an_interval_over_seeds_contains_the_variance_of_the_documents_that_they_share():
    """Three seeds err alike: the mean has the interval of one of them, not of three draws."""
    resamples = np.random.default_rng(1).normal(0.05, 0.02, 2000)
    seeds = [measures.Resampled(np.append(mean, resamples), 10**6) for mean in (0.049, 0.05, 0.051)]
    shared = measures.over_seeds(seeds)
    assert shared.high - shared.low > 2 * 1.96 * 0.02


def test_an_interval_over_seeds_is_students():
    """Costs .03, .05 and .07: the mean is .05 and the interval .05 +- 4.303 * .02 / sqrt(3)."""
    rows = []
    for seed, cost in enumerate((0.03, 0.05, 0.07)):
        for member, nll in (("base=10000", 3.0), ("base=10", 3.0 + cost)):
            task = {"perplexity": losses([10, 100], [[nll, nll]] * 5)}
            rows.append(make_row(task, member, seed))
    card = CARDS["language_model"]
    cost = card.claims[0].measure(card, rows)
    assert (cost.n, cost.unit) == (3, "seeds")
    half = 4.30265 * 0.02 / 3**0.5
    assert cost[:3] == pytest.approx((0.05, 0.05 - half, 0.05 + half), abs=1e-5)
    # Claims a1 (at least .02) and a2 (at most .10): the interval is .0003 to .0997.
    assert [judge(claim, card, rows)[0] for claim in card.claims[:2]] == [UNDECIDED, HELD]
    cheap = [dataclasses.replace(row, seed=0) for row in rows if row.seed == 0]
    assert judge(card.claims[3], card, cheap)[0] == NOT_MEASURED  # base 100 has no row
    assert judge(card.claims[1], card, cheap)[0] == UNDECIDED  # the claim names three seeds
    one_seed = dataclasses.replace(card, seeds=(0,))
    assert judge(card.claims[1], one_seed, cheap)[0] == HELD


def test_the_ratio_of_half_lags():
    rows = []
    for seed in range(3):
        for member, edge in (("base=10", 17), ("base=100", 150), ("base=10000", 10**9)):
            gain = {lag: 1.0 if lag < edge else 0.1 for lag in (9, 17, 35, 70, 150, 300)}
            rows.append(make_row(copies(gain), member, seed))
    card = CARDS["language_model"]
    claims = {claim.text[:2]: claim for claim in card.claims}
    c1, c2, c3 = (claims[name].measure(card, rows) for name in ("c1", "c2", "c3"))
    assert c3.value == pytest.approx(c2.value / c1.value)
    assert judge(claims["b2"], card, rows)[0] == HELD
    # The ratio falls from 1 to .1 between the half octaves 8 ... 11 and 16 ... 22, an octave apart.
    assert c1.value == pytest.approx((8 * 11) ** 0.5 * 2 ** (0.5 / 0.9), rel=0.01)
    assert judge(claims["c1"], card, rows)[0] == HELD


@pytest.mark.long
def test_a_report_has_the_rows_of_the_seeds_that_are_named(tmp_path, monkeypatch):
    """The loss of base 10 of seed 1; that of seed 0 is .00648."""
    monkeypatch.setattr(measures, "_RESAMPLES", 20)
    options = "--only", "language_model", "--seeds", 1, "--workdir", tmp_path
    output = call("-m", "studies", "report", "language_model", *options)
    assert "base=10, loss 0.0115 [" in output


def test_a_card_without_base_10000_is_compared_with_that_of_its_device():
    reference = {name: measures.reference_card(card) for name, card in CARDS.items()}
    assert reference["language_model_variants"] == "language_model_seeds"
    assert reference["language_model_30m"] == "language_model_30m"


def test_runs_are_compared_if_they_read_the_same_rows():
    """The same text gives another tokenizer on another machine, and so rows that are shifted."""
    run, reference = (
        make_row({"perplexity": losses([10], [[nats]] * 4)}, member, made_by={})
        for member, nats in (("base=10", 3.5), ("base=10000", 3.0))
    )
    cost = measures.cost("base=10")
    card = dataclasses.replace(CARDS["language_model"], seeds=(0,))
    assert cost(card, [run, reference]).value == pytest.approx(0.5)
    moved = dataclasses.replace(run, made_by={"tokenizer": "5159"})
    assert cost(card, [moved, reference]) is None
