"""Measures that the claims of this study name: of members, and of theories over members."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from ropewalk.evals.estimate.effective_context import NOT_LEARNED
from ropewalk.studies.capability import theories
from ropewalk.studies.capability.results import WHOLE, estimate_rows, l50_value, last_rows
from ropewalk.studies.capability.theories import MINIMAL_HEAD, Comparison, interval_of
from ropewalk.studies.card import Card, Measure, Value, as_measure
from ropewalk.studies.rows import Row


def _finished(card: Card, rows: Sequence[Row], member: str) -> tuple[Row, ...]:
    return tuple(row for row in last_rows(card, rows, member) if row.final)


@as_measure
def l50(card: Card, rows: Sequence[Row], member: str, measurement: str = WHOLE) -> Value | None:
    """L50 of a member, tokens.

    A model with masked heads that is right nowhere has the shortest distance as its L50: whether it
    has learned the task shows with all its heads. If it is right at some distances, but too rarely,
    it has no L50.
    """
    finished = _finished(card, rows, member)
    estimate, usual = (estimate_rows(finished, name) for name in (measurement, WHOLE))
    if estimate is None:
        return None
    value = l50_value(estimate)
    is_nowhere = all(seed.ceiling.low <= estimate.chance for seed in estimate.seeds)
    if is_nowhere and usual and not math.isnan(l50_value(usual).value):
        value = Value(estimate.shortest, estimate.shortest, estimate.shortest, value.n)
    return value


@as_measure
def mean_accuracy(card: Card, rows: Sequence[Row], member: str) -> Value | None:
    """Mean accuracy of a member over distances, also where rows do not decide its L50."""
    estimate = estimate_rows(_finished(card, rows, member), WHOLE)
    if estimate is None or estimate.verdict == NOT_LEARNED:
        return estimate and l50_value(estimate)
    ends = estimate.mean_accuracy_low, estimate.mean_accuracy_high
    return Value(estimate.mean_accuracy, *ends, estimate.num_seeds)


@as_measure
def difference(card: Card, rows: Sequence[Row], after: Measure, before: Measure) -> Value | None:
    """`after` minus `before`; half-widths of intervals add in quadrature."""
    a, b = after(card, rows), before(card, rows)
    if a is None or b is None:
        return None
    value, n = a.value - b.value, min(a.n, b.n)
    low = value - math.hypot(a.value - a.low, b.high - b.value)
    high = value + math.hypot(a.high - a.value, b.value - b.low)
    return Value(value, low, high, n, a.unit)


@as_measure
def octaves(card: Card, rows: Sequence[Row], measure: Measure) -> Value | None:
    """Log2 of a length."""
    value = measure(card, rows)
    if value is None or math.isnan(value.value):
        return value
    middle, low, high = (math.log2(x) if x > 0 else -math.inf for x in value[:3])
    return Value(middle, low, high, value.n, value.unit)


def rise(before: str, after: str, *measurements: str) -> Measure:
    """Return the measure of how many octaves L50 rises from one member to another.

    Args:
      before, after: members.
      *measurements: of `before` and of `after`; none: the usual one.
    """
    first, second = measurements or (WHOLE, WHOLE)
    return difference(octaves(l50(after, second)), octaves(l50(before, first)))


def gain(before: str, after: str) -> Measure:
    """Return the measure of how much mean accuracy rises from one member to another."""
    return difference(mean_accuracy(after), mean_accuracy(before))


@as_measure
def least(card: Card, rows: Sequence[Row], *measures: Measure) -> Value | None:
    """Least of several numbers, for claims about each of them."""
    values = [item for measure in measures if (item := measure(card, rows))]
    if len(values) < len(measures):
        return None
    middles, lows, highs, counts = zip(*(value[:4] for value in values), strict=True)
    low = -math.inf if any(map(math.isnan, lows)) else min(lows)
    # A number that is not known is not the least, but the least may be anywhere below the others.
    return Value(float(np.fmin.reduce(middles)), low, float(np.fmin.reduce(highs)), min(counts))


@as_measure
def frequency(card: Card, rows: Sequence[Row], member: str, *, slowest: int) -> Value | None:
    """Median of some slowest learned frequencies of a member, radians per token."""
    learned = [np.sort(r.numbers["inv_freq"], axis=None) for r in _finished(card, rows, member)]
    medians = [float(np.median(inv_freq[:slowest])) for inv_freq in learned]
    return Value.over(medians) if medians else None


def _over_members(number: Callable[..., Value]) -> Callable[..., Measure]:
    """Return the function that makes measures of a number of learned members.

    Its arguments are those of `number`, and those that select the members: their answers, `low` to
    `high` thousand, and other attributes of `Comparison`. With fewer than two there is no number.
    """

    @as_measure
    def measure(
        card: Card, rows: Sequence[Row], /, *args: Any, low: float, high: float, **options: Any
    ) -> Value | None:
        fields = {name: options.pop(name) for name in Comparison._fields if name in options}
        items = theories.select(theories.compare(tuple(rows)), low, high, is_learned=True, **fields)
        return number(items, *args, **options) if len(items) > 1 else None

    return measure


@_over_members
def theory_error(items: Sequence[Comparison], theory: str, *, of_accuracy: bool = False) -> Value:
    """Root mean square error of a theory, octaves of L50 or accuracy."""
    return theories.error(items, theory, of_accuracy=of_accuracy).rms


@_over_members
def _constant(items: Sequence[Comparison], theory: str) -> Value:
    return theories.error(items, theory, of_accuracy=False).constant


def constant_growth(theory: str) -> Measure:
    """Return the measure of how many octaves the constant of plain members grows with training."""
    plain: dict[str, Any] = {"is_plain": True, "head_dim": 64}
    late = _constant(theory, low=1000, high=math.inf, **plain)
    return difference(octaves(late), octaves(_constant(theory, low=150, high=200, **plain)))


def _biases(items: Sequence[Comparison], lower: float) -> np.ndarray:
    """Return the minimal head's errors of mean accuracy, with log-odds lower by a number."""
    accuracy = np.array([item.record["mean_accuracy"] for item in items])
    forecast = accuracy / (accuracy + (1 - accuracy) * math.exp(lower))
    return forecast - np.array([item.measured.mean_accuracy for item in items])


@_over_members
def theory_bias(items: Sequence[Comparison], *, lower: float = 0) -> Value:
    """Bias of the minimal head's mean accuracy; `lower` is taken off the log-odds of forecasts."""
    return Value.over(_biases(items, lower), "members")


@_over_members
def theory_saved(items: Sequence[Comparison], *, lower: float) -> Value:
    """Absolute error of mean accuracy that `lower` removes."""
    return Value.over(abs(_biases(items, 0)) - abs(_biases(items, lower)), "members")


@_over_members
def theory_curve(items: Sequence[Comparison]) -> Value:
    """Error of the minimal head's accuracy by distance, over members."""
    square = np.square([item.curve_error for item in items])
    random = np.random.default_rng(0)
    draws = random.integers(len(items), size=(theories.RESAMPLES, len(items)))
    means = np.concatenate([[square.mean()], square[draws].mean(axis=1)])
    return interval_of(np.sqrt(means), len(items))


def _share(counted: Sequence[bool]) -> Value:
    """Return the share of members that count, with Clopper's interval."""
    interval = stats.binomtest(sum(counted), len(counted)).proportion_ci()
    share = sum(counted) / len(counted)
    return Value(share, interval.low, interval.high, len(counted), "members")


@_over_members
def theory_too_high(items: Sequence[Comparison]) -> Value:
    """Share of members whose mean accuracy is forecast too high."""
    return _share([item.bias > 0 for item in items])


@_over_members
def theory_failed(items: Sequence[Comparison]) -> Value:
    """Share of members whose curves are off by more than .15, or L50 by .3 octaves."""
    octaves = [abs(item.octaves(item.lengths[MINIMAL_HEAD])) for item in items]
    return _share(
        [
            item.curve_error > 0.15 or (item.has_one_head and error > 0.3)
            for item, error in zip(items, octaves, strict=True)
        ]
    )
