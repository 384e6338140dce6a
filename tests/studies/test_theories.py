"""Errors of theories over members; the committed rows have the known bias."""

import math
from types import SimpleNamespace

import pytest

from ropewalk import studies
from ropewalk.studies.capability import measures, parts, results, theories
from ropewalk.studies.capability.results import count_answers
from ropewalk.studies.capability.theories import B_M, D_H, MINIMAL_HEAD, Comparison
from ropewalk.studies.card import Value


def make(l50: float, length: float, *, is_beyond: bool = False, bias: float = 0.1) -> Comparison:
    measured = SimpleNamespace(
        l50=l50, longest=125, shortest=1, chance=0.0, mean_accuracy=l50 / 125, ceiling=1.0,
        verdict="MEASURED", ci_low=l50, ci_high=l50, num_seeds=1, num_learned=1,
        seeds=[SimpleNamespace(beyond=is_beyond)],
    )  # fmt: skip
    return Comparison(
        card="C", member="m", is_blind=True, answers=163_000, measured=measured,
        record={"mean_accuracy": l50 / 125 + bias},
        lengths=dict.fromkeys(theories.THEORIES, length),
        has_one_head=True, is_plain=True, head_dim=64, base=10.0,
    )  # fmt: skip


def test_a_proportional_theory_has_no_error_with_its_constant():
    items = [make(3.03 * length, length) for length in (5, 8, 17, 30)]
    error = theories.error(items, B_M, of_accuracy=False, fit=True)
    assert error.rms.value == pytest.approx(0, abs=0.02) and error.rms.n == 4
    assert error.constant.value == pytest.approx(3.03, rel=0.02)
    raw = theories.error(items, B_M, of_accuracy=False, fit=False)
    assert raw.rms.value == pytest.approx(math.log2(3.03))
    mean = theories.error(items, D_H, of_accuracy=True, fit=True)
    assert mean.rms.value == pytest.approx(0, abs=0.01)
    head = theories.error(items, MINIMAL_HEAD, of_accuracy=True, fit=False)
    assert head.rms.value == pytest.approx(0.1) and head.constant.value == 1


def test_members_beyond_all_distances_on_both_sides_have_no_error():
    censored = make(125, math.inf, is_beyond=True)
    items = [make(20, 10), make(40, 20), censored]
    error = theories.error(items, D_H, of_accuracy=False, fit=False)
    assert error.rms.value == pytest.approx(1) and error.rms.n == 2
    # A finite forecast of a member without a fall is an error, at least this large.
    assert make(125, 12.5, is_beyond=True).octaves(12.5) == pytest.approx(math.log2(0.1))
    assert math.isnan(censored.octaves(200))


@pytest.mark.parametrize(("verdict", "mark"), [("> 125", "exceeds"), ("LOW_CEILING", "undecided")])
def test_a_low_ceiling_is_no_l50(verdict, mark):
    """C10's four fast heads without the last have a ceiling of .88, and "exceeded" D_H."""
    item = make(125, 10)
    vars(item.measured).update(verdict=verdict, ci_low=125, ci_high=math.inf)
    assert parts._mark_of_bound(item.measured, 20) == mark
    assert math.isnan(item.octaves(10)) is (mark == "undecided")


def test_a_mean_accuracy_is_known_where_l50_is_not(monkeypatch):
    """Seeds of which one falls: the mean accuracy of C16's p-RoPE was "undetermined" too."""
    estimate = make(math.nan, 10).measured
    ends = dict(mean_accuracy_low=0.8, mean_accuracy_high=1.0)
    vars(estimate).update(verdict="UNDETERMINED", mean_accuracy=0.9, **ends)
    monkeypatch.setattr(measures, "_finished", lambda *_: ())
    monkeypatch.setattr(measures, "estimate_rows", lambda *_: estimate)
    assert measures.mean_accuracy("p-rope")(None, ()) == Value(0.9, 0.8, 1.0, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
def test_only_a_model_that_is_right_nowhere_has_the_shortest_distance_as_its_l50(committed):
    """C10's last of four fast heads alone has a ceiling of a half; the slow head is all of one."""
    card = studies.load_cards("capability")["C10"]
    masked = measures.l50("one-slow", "last head masked")(card, committed)
    alone = measures.l50("none-slow", "last head alone")(card, committed)
    assert masked[:3] == (1, 1, 1) and math.isnan(alone.value)


@pytest.fixture
def few_resamples(monkeypatch):
    """Save the time of intervals, which the test does not read."""
    monkeypatch.setattr(results, "_RESAMPLES", 20)
    yield
    for function in (results.estimate_rows, theories.compare):
        function.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
def test_the_minimal_head_is_too_high(committed):
    """Of 35 members, one has the forecast of an older card; the bias was found by other code."""
    old = [row for row in committed if row.card != "C20"]  # which is younger
    some = [row for row in old if 150_000 <= count_answers(row) < 200_000]
    compared = theories.compare(tuple(some))
    blind = theories.select(compared, 150, 200, is_blind=True, is_learned=True)
    assert len(blind) == 34
    assert ("C12", "base=10,keys=64") not in [(item.card, item.member) for item in blind]
    assert sum(item.bias > 0 for item in blind) == 30
    assert sum(item.bias for item in blind) / 34 == pytest.approx(0.040, abs=0.002)


def test_lower_log_odds_move_a_forecast(monkeypatch):
    # Forecasts of 1/2, 1 and 0, which become 1 / (1 + e), 1 and 0.
    items = [make(0, 1, bias=bias) for bias in (0.5, 1.0, 0.0)]
    monkeypatch.setattr(theories, "compare", lambda rows: items)
    measured = sum(item.measured.mean_accuracy for item in items) / 3
    for measure, value in (
        (measures.theory_bias(low=0, high=200), 0.5 - measured),
        (measures.theory_bias(low=0, high=200, lower=1), (1 / (1 + math.e) + 1) / 3 - measured),
        (measures.theory_saved(low=0, high=200, lower=1), (0.5 - 1 / (1 + math.e)) / 3),
    ):
        assert measure(None, ()).value == pytest.approx(value)
