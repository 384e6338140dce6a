"""Measures that the claims of this study name: of members, and of theories over members."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from ropewalk.studies.capability import theories
from ropewalk.studies.capability.results import WHOLE, estimate_rows, l50_value, last_rows
from ropewalk.studies.capability.theories import MINIMAL_HEAD, Comparison, interval_of
from ropewalk.studies.card import Card, Measure, Value
from ropewalk.studies.rows import Row


def _finished(card: Card, rows: Sequence[Row], member: str) -> tuple[Row, ...]:
    return tuple(row for row in last_rows(card, rows, member).values() if row.final)


def l50(member: str, measurement: str = WHOLE) -> Measure:
    """Return the measure of a member's L50, tokens.

    A model with masked heads that is right nowhere has the shortest distance as its L50: whether it
    has learned the task shows with all its heads.
    """

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        finished = _finished(card, rows, member)
        estimate, usual = (estimate_rows(finished, name) for name in (measurement, WHOLE))
        if estimate is None:
            return None
        value = l50_value(estimate)
        if math.isnan(value.value) and usual and not math.isnan(l50_value(usual).value):
            shortest = max(estimate.shortest, 1)
            value = Value(shortest, shortest, shortest, value.n)
        return value

    return measure


def mean_accuracy(member: str) -> Measure:
    """Return the measure of a member's mean accuracy over distances."""

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        estimate = estimate_rows(_finished(card, rows, member), WHOLE)
        if estimate is None or math.isnan(l50_value(estimate).value):
            return estimate and l50_value(estimate)
        ends = estimate.mean_accuracy_low, estimate.mean_accuracy_high
        return Value(estimate.mean_accuracy, *ends, estimate.num_seeds)

    return measure


def difference(after: Measure, before: Measure) -> Measure:
    """Return the measure `after` minus `before`; half-widths of intervals add in quadrature."""

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        a, b = after(card, rows), before(card, rows)
        if a is None or b is None:
            return None
        value, n = a.value - b.value, min(a.n, b.n)
        low = value - math.hypot(a.value - a.low, b.high - b.value)
        high = value + math.hypot(a.high - a.value, b.value - b.low)
        return Value(value, low, high, n, a.unit)

    return measure


def octaves(measured: Measure) -> Measure:
    """Return the measure log2 of a length."""

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        value = measured(card, rows)
        if value is None or math.isnan(value.value):
            return value
        middle, low, high = (math.log2(x) if x > 0 else -math.inf for x in value[:3])
        return Value(middle, low, high, value.n, value.unit)

    return measure


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


def least(*measures: Measure) -> Measure:
    """Return the measure of the least of several numbers, for claims about each of them."""

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        values = [item for measure in measures if (item := measure(card, rows))]
        if len(values) < len(measures):
            return None
        middle, low, high, n = map(min, zip(*(value[:4] for value in values), strict=True))
        return Value(middle, low, high, int(n))

    return measure


def frequency(member: str, *, slowest: int) -> Measure:
    """Return the measure of the median of some slowest learned frequencies, radians per token."""

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        learned = [np.sort(r.numbers["inv_freq"], axis=None) for r in _finished(card, rows, member)]
        medians = [float(np.median(inv_freq[:slowest])) for inv_freq in learned]
        return Value.over(medians) if medians else None

    return measure


def _over_members(
    number: Callable[[Sequence[Comparison]], Value | None], low: float, high: float, fields: dict
) -> Measure:
    """Return the measure of a number of learned members; None if there are fewer than two.

    Args:
      number: of the members.
      low, high: their answers, thousands.
      fields: other attributes of `Comparison` that select them.
    """

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        items = theories.select(rows, low, high, **fields)
        return number(items) if len(items) > 1 else None

    return measure


def theory_error(
    theory: str, *, low: float, high: float, of_accuracy: bool = False, **fields: Any
) -> Measure:
    """Return the measure of a theory's root mean square error, octaves of L50 or accuracy."""

    def number(items: Sequence[Comparison]) -> Value:
        has_constant = theory != MINIMAL_HEAD
        return theories.error(items, theory, of_accuracy=of_accuracy, fit=has_constant).rms

    return _over_members(number, low, high, fields)


def constant_growth(theory: str) -> Measure:
    """Return the measure of how many octaves the constant of plain members grows with training."""

    def constant(low: float, high: float) -> Measure:
        def number(items: Sequence[Comparison]) -> Value:
            return theories.error(items, theory, of_accuracy=False, fit=True).constant

        fields = {"is_plain": True, "head_dim": 64}
        return octaves(_over_members(number, low, high, fields))

    return difference(constant(1000, math.inf), constant(150, 200))


def _forecast(item: Comparison, lower: float) -> float:
    """Return the minimal head's mean accuracy, with log-odds that are lower by a number."""
    accuracy = item.record["mean_accuracy"]
    return accuracy / (accuracy + (1 - accuracy) * math.exp(lower))


def theory_bias(*, low: float, high: float, lower: float = 0, **fields: Any) -> Measure:
    """Return the measure of the minimal head's bias of mean accuracy.

    Args:
      low, high: answers of the members, thousands.
      lower: what is taken off the log-odds of each forecast.
      **fields: see `_over_members`.
    """

    def number(items: Sequence[Comparison]) -> Value:
        errors = [_forecast(item, lower) - item.measured.mean_accuracy for item in items]
        return Value.over(errors, "members")

    return _over_members(number, low, high, fields)


def theory_saved(*, low: float, high: float, lower: float, **fields: Any) -> Measure:
    """Return the measure of how much absolute error of mean accuracy `lower` removes."""

    def number(items: Sequence[Comparison]) -> Value:
        measured = np.array([item.measured.mean_accuracy for item in items])
        before, after = (
            abs(np.array([_forecast(item, change) for item in items]) - measured)
            for change in (0, lower)
        )
        return Value.over(before - after, "members")

    return _over_members(number, low, high, fields)


def theory_curve(*, low: float, high: float, **fields: Any) -> Measure:
    """Return the measure of the minimal head's error of accuracy by distance, over members."""

    def number(items: Sequence[Comparison]) -> Value:
        square = np.square([item.curve_error for item in items])
        random = np.random.default_rng(0)
        draws = random.integers(len(items), size=(theories.RESAMPLES, len(items)))
        means = np.concatenate([[square.mean()], square[draws].mean(axis=1)])
        return interval_of(np.sqrt(means), len(items))

    return _over_members(number, low, high, fields)


def _share(is_counted: Callable[[Comparison], bool]) -> Callable[[Sequence[Comparison]], Value]:
    """Return the function that computes the share of members, with Clopper's interval."""

    def number(items: Sequence[Comparison]) -> Value:
        count = sum(map(is_counted, items))
        interval = stats.binomtest(count, len(items)).proportion_ci()
        return Value(count / len(items), interval.low, interval.high, len(items), "members")

    return number


def theory_too_high(*, low: float, high: float, **fields: Any) -> Measure:
    """Return the measure of the share of members whose mean accuracy is forecast too high."""
    return _over_members(_share(lambda item: item.bias > 0), low, high, fields)


def theory_failed(*, low: float, high: float, **fields: Any) -> Measure:
    """Return the measure of the share of curves off by more than .15, or L50 by .3 octaves."""

    def is_failed(item: Comparison) -> bool:
        octaves = item.octaves(item.lengths[MINIMAL_HEAD])
        return item.curve_error > 0.15 or (item.has_one_head and abs(octaves) > 0.3)

    return _over_members(_share(is_failed), low, high, fields)
