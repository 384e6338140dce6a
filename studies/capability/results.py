"""Estimates from the rows of this study, and the numbers that its claims are about.

A run that two cards share counts for both, up to the largest budget of each card.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence

import numpy as np

from evals.estimate.effective_context import Estimate, estimate_trials
from evals.estimate.statistics import t_half_width
from evals.estimate.trials import Trials
from experiment.config import ExperimentConfig, to_dict
from experiment.run import flatten, is_operational
from studies.capability.forecasts import count_tokens
from studies.card import Card, Value
from studies.rows import Answers, Row

Measure = Callable[[Card, Sequence[Row]], Value | None]

WHOLE = "whole"  # name of a card's usual measurement
_RESAMPLES = 1000


@functools.cache
def identity(config: ExperimentConfig) -> str:
    """Return a text that is equal for runs that differ at most in card, seed and budget."""
    fields = flatten(to_dict(config))
    seeds = "name", "question", "seed", "data.seed", "train.num_steps"
    names = [name for name in fields if name not in seeds and not is_operational(name)]
    return json.dumps({name: fields[name] for name in names}, default=str)


@functools.cache
def configs_of(card: Card) -> dict[str, ExperimentConfig]:
    """Return `card.configs()`."""
    return card.configs()


@functools.lru_cache(maxsize=1)
def _by_identity(rows: tuple[Row, ...]) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.tokens):
        runs.setdefault(identity(row.config), []).append(row)
    return runs


def rows_of(config: ExperimentConfig, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a config with any seed and budget, by tokens."""
    return _by_identity(tuple(rows)).get(identity(config), [])


def last_rows(card: Card, rows: Sequence[Row], member: str) -> dict[int, Row]:
    """Return the row of a member's largest budget by seed.

    If any seed is finished, those that are not are left out.
    """
    configs = configs_of(card)
    largest = max(count_tokens(b) for config in configs.values() for b in card.budgets(config))
    by_seed = {
        row.seed: row
        for row in rows_of(configs[member], rows)
        if row.card == card.name or row.tokens <= largest
    }
    finished = {seed: row for seed, row in by_seed.items() if row.final}
    return dict(sorted((finished or by_seed).items()))


def estimate_rows(rows: Sequence[Row], measurement: str) -> Estimate | None:
    """Return the estimate over the seeds of one run; None if there is no retrieval task."""
    return _estimate(tuple(rows), measurement)


@functools.cache
def _estimate(rows: tuple[Row, ...], measurement: str) -> Estimate | None:
    trials, answers = join_trials(rows, measurement)
    if trials is None or answers is None:
        return None
    # Only the first length matters here, that of the evaluation.
    lengths = answers.length, answers.length
    return estimate_trials(trials, task=answers.task, lengths=lengths, resamples=_RESAMPLES)


def join_trials(
    rows: Sequence[Row], measurement: str
) -> tuple[Trials, Answers] | tuple[None, None]:
    """Return the counts of all seeds on the first retrieval task, and one seed's answers."""
    answers = [
        (
            row.seed,
            next((a for a in row.answers if a.measurement == measurement and a.counts), None),
        )
        for row in rows
    ]
    counts = [(seed, item.counts) for seed, item in answers if item and item.counts]
    if not counts:
        return None, None
    columns = [item.columns(seed) for seed, item in counts]
    trials = Trials.from_counts(
        {name: np.concatenate([column[name] for column in columns]) for name in columns[0]},
        distances=(min(c.shortest for _, c in counts), max(c.longest for _, c in counts)),
        chance=counts[0][1].chance,
    )
    return trials, next(item for _, item in answers if item)


def count_answers(row: Row) -> int:
    """Return the answers of the training of a row's run, as documents of the evaluation have."""
    counts = next((item.counts for item in row.answers if item.counts is not None), None)
    documents = row.tokens / row.config.data.context_length
    return 0 if counts is None else round(documents * counts.asked.sum() / len(counts.asked))


def l50_value(estimate: Estimate) -> Value:
    """Return L50 in tokens with its interval; NaN if the task was not learned."""
    learned = [seed for seed in estimate.seeds if seed.learned]
    if not learned or 2 * len(learned) < len(estimate.seeds):
        return Value(math.nan, -math.inf, math.inf, len(estimate.seeds))
    return Value(estimate.l50, estimate.ci_low, estimate.ci_high, len(learned))


def _finished(card: Card, rows: Sequence[Row], member: str) -> tuple[Row, ...]:
    return tuple(row for row in last_rows(card, rows, member).values() if row.final)


def l50(member: str, measurement: str = WHOLE) -> Measure:
    """Return the measure of a member's L50, tokens.

    A model with masked heads that is right nowhere has the shortest distance as its L50: whether it
    has learned the task shows with all its heads.
    """

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        finished = _finished(card, rows, member)
        estimate, whole = (estimate_rows(finished, name) for name in (measurement, WHOLE))
        if estimate is None:
            return None
        value = l50_value(estimate)
        if math.isnan(value.value) and whole and not math.isnan(l50_value(whole).value):
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


def frequency_measure(member: str, number: Callable[[np.ndarray], float]) -> Measure:
    """Return the measure of a number of learned frequencies, radians per token, over seeds."""

    def measure(card: Card, rows: Sequence[Row]) -> Value | None:
        learned = [r.numbers["inv_freq"] for r in _finished(card, rows, member)]
        return over_units(np.array([number(np.sort(x, axis=None)) for x in learned]), "seeds")

    return measure


def over_units(values: np.ndarray, unit: str) -> Value | None:
    """Return the mean of independent values with Student's interval; None without values."""
    if not len(values):
        return None
    half = t_half_width(values) if len(values) > 1 else math.inf
    mean = float(values.mean())
    return Value(mean, mean - half, mean + half, len(values), unit)
