"""Measurements of language models, paired by document with another run.

Every measurement is a function of sums over documents: nats over tokens, copy gain over answers, or
copy gain over that of another run. So one bootstrap over documents gives all intervals.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ropewalk import evals
from ropewalk.evals.estimate.bins import FINE_PER_BIN, fine_bin_start
from ropewalk.evals.estimate.statistics import expanded, mean_over_seeds
from ropewalk.evals.tasks.lagcopy import Lagcopy
from ropewalk.evals.tasks.perplexity import Perplexity
from ropewalk.studies.card import Card, Measure, Value, as_measure
from ropewalk.studies.rows import Losses, Row

LENGTH = 512  # tokens of a trained row
REFERENCE = "base=10000"
_RESAMPLES = 2000
WHOLE = "whole"  # name of a card's usual measurement
SHORTEST_LAG = 8  # tokens; passages of shorter lags have too few answers for a half lag
LEAST_GAIN = 0.1  # nats: the gain of models that do not copy is below it
NEARBY = 16  # tokens: how much a run copies at all is measured up to this lag
_COST_WITHOUT_COPYING, _COST_OF_LEVEL = 0.307, -0.328  # nats per token, of 17 runs


class Sums(NamedTuple):
    """Sums of one run, by document and half octave.

    Attributes:
      total_DB: float64, sum over tokens or answers, nats.
      count_DB: float64, number of tokens or answers.
      center_B: float64, geometric center of each half octave of positions or lags, tokens.
    """

    total_DB: np.ndarray
    count_DB: np.ndarray
    center_B: np.ndarray

    def within(self, first: float, last: float) -> "Sums":
        """Return the half octaves whose centers lie in first ... last."""
        keep = (self.center_B >= first) & (self.center_B <= last)
        return Sums(self.total_DB[:, keep], self.count_DB[:, keep], self.center_B[keep])

    def minus(self, other: "Sums") -> "Sums":
        """Return the sums less those of another run on the same documents."""
        _check_paired(self, other)
        return self._replace(total_DB=self.total_DB - other.total_DB)


def losses(row: Row, length: int = LENGTH, first: float = 1, last: float = np.inf) -> Sums | None:
    """Return the losses of `perplexity` at positions first ... last; None if not measured.

    `length` is the context length, tokens.
    """
    for task, part in _losses(row, length):
        if isinstance(task, Perplexity):
            return _sums(part, part.nll).within(first, last)
    return None


def gains(
    row: Row,
    first: float = 1,
    last: float = np.inf,
    *,
    length: int = LENGTH,
    measurement: str = WHOLE,
) -> Sums | None:
    """Return the copy gains at lags first ... last; None if they were not measured.

    The gain of an answer is its loss in `lagcopy(text=control)` minus that in `text=natural`. Lags
    are the distances of the rows: one less than the task's `lag`.

    Args:
      row: of a run.
      first, last: lags, tokens.
      length: context length, tokens.
      measurement: name of the card's measurement.

    Raises:
      ValueError: if both texts have other documents.
    """
    by_text = {
        task.text: part
        for task, part in _losses(row, length, measurement)
        if isinstance(task, Lagcopy)
    }
    if not {"natural", "control"} <= by_text.keys():
        return None
    natural, control = by_text["natural"], by_text["control"]
    if not np.array_equal(natural.tokens, control.tokens):
        raise ValueError("natural text and its control have other documents; measure both again")
    return _sums(natural, control.nll - natural.nll).within(first, last)


def _losses(row: Row, length: int, measurement: str = "") -> Iterator[tuple[object, Losses]]:
    for answers in row.answers:
        is_chosen = answers.length == length and measurement in ("", answers.measurement)
        if answers.losses is not None and is_chosen:
            yield evals.parse(answers.task), answers.losses


def _sums(losses: Losses, total_DF: np.ndarray) -> Sums:
    bins, starts = np.unique(losses.fine // FINE_PER_BIN, return_index=True)
    first = fine_bin_start(bins * FINE_PER_BIN)
    last = fine_bin_start((bins + 1) * FINE_PER_BIN) - 1
    return Sums(
        np.add.reduceat(total_DF, starts, axis=1),
        np.add.reduceat(losses.tokens.astype(float), starts, axis=1),
        np.sqrt(first * np.maximum(first, last)),
    )


class Resampled(NamedTuple):
    """A statistic of documents, and of resamples of them.

    Two of the same documents have the same resamples, so that numbers made of both are resampled
    jointly.

    Attributes:
      values: float64 `[1 + resamples]`, that of the data first; NaN: there is nothing to measure.
      documents: number of documents.
    """

    values: np.ndarray
    documents: int

    def map(self, function: Callable[..., np.ndarray], *others: "Resampled") -> "Resampled":
        """Return a function of this statistic and others."""
        items = self, *others
        values = function(*(item.values for item in items))
        return Resampled(values, min(item.documents for item in items))

    def of_data(self) -> "Resampled":
        """Return the statistic without the noise of the documents."""
        return self._replace(values=np.repeat(self.values[0], len(self.values)))


NOTHING = Resampled(np.full(1, np.nan), 0)


def measure_mean(run: Sums) -> Resampled:
    """Measure the mean over the tokens or answers of all bins."""
    return _bootstrap(_mean, run.total_DB, run.count_DB)


def measure_difference(run: Sums, reference: Sums) -> Resampled:
    """Measure the mean of `run` minus that of `reference`, on the same documents."""
    return measure_mean(run.minus(reference))


def measure_ratio(run: Sums, reference: Sums) -> Resampled:
    """Measure the copy gain of `run` divided by that of `reference`, on the same documents.

    A gain of `reference` below LEAST_GAIN is that of a model that does not copy: NOTHING.
    """
    _check_paired(run, reference)
    if abs(reference.total_DB.sum()) < LEAST_GAIN * reference.count_DB.sum():
        return NOTHING
    return _bootstrap(_mean, run.total_DB, reference.total_DB)


def measure_regained(run: Sums, before: Sums, reference: Sums) -> Resampled:
    """Measure the share of `before`'s deficit against `reference` that `run` has regained."""
    return measure_ratio(run.minus(before), reference.minus(before))


def shares(run: Sums, reference: Sums, nearby: float = 0) -> np.ndarray:
    """Return the copy gain of `run` by that of `reference` in each half octave of lags.

    With `nearby`, divided by the level: what it is in the half octaves up to this lag.
    """
    totals = run.total_DB.sum(0)[None], reference.total_DB.sum(0)[None]
    return _shares(*totals, run.center_B <= nearby)[0]


def _shares(gain_RB: np.ndarray, reference_RB: np.ndarray, near_B: np.ndarray) -> np.ndarray:
    level_R = gain_RB[:, near_B].sum(1) / reference_RB[:, near_B].sum(1) if near_B.any() else 1
    return gain_RB / reference_RB / np.reshape(level_R, (-1, 1))


def measure_half_lag(
    run: Sums, reference: Sums, *, nearby: float = 0, least_level: float = 0
) -> Resampled:
    """Measure the lag from which on `run` first has less than half of the gain of `reference`.

    Lags from SHORTEST_LAG on count. Linear in log lag between half octaves; inf if it has half at
    all lags, the center of the first half octave if at none.

    Args:
      run, reference: copy gains on the same documents.
      nearby: half of the share of the gain that `run` has up to this lag. So a run that copies half
        as much as `reference`, but at all lags, has no half lag. 0: half of the gain.
      least_level: share of the gain up to `nearby` below which the run has not learned to copy; if
        it is given, neither has a reference whose gain is below LEAST_GAIN there.
    """
    _check_paired(run, reference)
    run, reference = (item.within(SHORTEST_LAG, np.inf) for item in (run, reference))
    near, near_reference = (x.within(0, nearby) for x in (run, reference))
    learned = LEAST_GAIN * near_reference.count_DB.sum() if least_level else -np.inf
    gain, reference_gain = near.total_DB.sum(), near_reference.total_DB.sum()
    if reference_gain < learned or gain < least_level * reference_gain:
        return NOTHING
    logs_B, near_B = np.log(run.center_B), run.center_B <= nearby

    def half_lags(gain_RB: np.ndarray, reference_RB: np.ndarray) -> np.ndarray:
        ratio_RB = _shares(gain_RB, reference_RB, near_B)
        return np.array([_crossing(ratio_B, logs_B) for ratio_B in ratio_RB])

    return _bootstrap(half_lags, run.total_DB, reference.total_DB)


def _crossing(ratio_B: np.ndarray, logs_B: np.ndarray) -> float:
    is_sampled_B = np.isfinite(ratio_B)  # a resample may have no answer in a half octave
    ratio_B, logs_B = ratio_B[is_sampled_B], logs_B[is_sampled_B]
    below = np.flatnonzero(ratio_B < 0.5)
    if not len(below):
        return np.inf
    last = below[0]
    if last == 0:
        return float(np.exp(logs_B[0]))
    first = last - 1
    share = (ratio_B[first] - 0.5) / (ratio_B[first] - ratio_B[last])
    return float(np.exp(logs_B[first] + share * (logs_B[last] - logs_B[first])))


def measure_reach_ratio(
    run: Sums, reference: Sums, other: Sums, other_reference: Sums, **options: float
) -> Resampled:
    """Measure the reach of `run` divided by that of `other`, on the same documents.

    Each has its own reference; options are those of `measure_half_lag`. A reach beyond all lags
    counts as the center of the last half octave, so the ratio is then closer to 1.
    """
    _check_paired(run, other)
    end = run.center_B[-1]
    reach = measure_half_lag(run, reference, **options)
    other_reach = measure_half_lag(other, other_reference, **options)
    return reach.map(lambda a, b: np.minimum(a, end) / np.minimum(b, end), other_reach)


def _check_paired(run: Sums, reference: Sums) -> None:
    """Raise ValueError unless both have the same numbers of tokens in the same documents."""
    if not np.array_equal(run.count_DB, reference.count_DB):
        raise ValueError("the runs were measured on other documents; measure both again")


def _mean(total_RB: np.ndarray, count_RB: np.ndarray) -> np.ndarray:
    return total_RB.sum(1) / count_RB.sum(1)


def _bootstrap(statistic: Callable[..., np.ndarray], *arrays_DB: np.ndarray) -> Resampled:
    """Return a statistic of the arrays' sums over documents, `[1 + resamples, B]`."""
    present_D = np.any([(array != 0).any(1) for array in arrays_DB], axis=0)
    weight_RD = _weights(np.count_nonzero(present_D), _RESAMPLES)
    with np.errstate(divide="ignore", invalid="ignore"):
        values_R = statistic(*(weight_RD @ array[present_D] for array in arrays_DB))
    return Resampled(values_R, weight_RD.shape[1])


@functools.lru_cache(maxsize=64)
def _weights(documents: int, resamples: int) -> np.ndarray:
    """Return how often each document is in the data, once, and in each resample."""
    random = np.random.Generator(np.random.Philox(key=0))
    draws = random.integers(documents, size=(resamples, documents))
    counts = [np.bincount(draw, minlength=documents) for draw in draws]
    return np.array([np.ones(documents), *counts])


def over_seeds(seeds: Sequence[Resampled], *, in_octaves: bool = False) -> Value:
    """Return the mean over seeds with its 95% interval; one seed has that over documents.

    The interval over seeds contains the variance of the documents that they share, and is at least
    the mean interval of one seed. Seeds with NOTHING to measure are left out.

    Args:
      seeds: one statistic per seed.
      in_octaves: whether the mean and the interval are those of the logarithms.
    """
    seeds = [seed for seed in seeds if not math.isnan(seed.values[0])]
    if not seeds:
        return Value(np.nan, -np.inf, np.inf, 0, "documents")
    documents = min(seed.documents for seed in seeds)
    values = np.array([seed.values for seed in seeds])
    values = np.log(values) if in_octaves else values
    ends = np.quantile(values[:, 1:], expanded(documents), axis=1, method="inverted_cdf")
    if len(seeds) == 1:
        interval, n, unit = (values[0, 0], *ends[:, 0]), documents, "documents"
    else:
        low, high = ends.mean(1)
        interval, n, unit = (values[:, 0].mean(), ends[0].min(), np.inf), len(seeds), "seeds"
        if np.isfinite(values[:, 0]).all():  # else a half lag beyond all lags: no t interval
            values = np.minimum(values, values[np.isfinite(values)].max())
            random = np.random.Generator(np.random.Philox(key=0))
            mean, least, most = mean_over_seeds(values, documents, random)
            interval = mean, min(low, least), max(high, most)
    value, low, high = np.exp(interval) if in_octaves else interval
    return Value(float(value), float(low), float(high), n, unit)


# --- measures that claims name -------------------------------------------------------------------


def runs_of(rows: Sequence[Row], card: str, member: str) -> dict[int, Row]:
    """Return the rows of a member by seed."""
    return {row.seed: row for row in rows if (row.card, row.member) == (card, member)}


def reference_card(card: Card, member: str = REFERENCE) -> str:
    """Return the card with the member that the others of `card` are compared with."""
    if member in card.members:
        return card.name
    # Those of the same device.
    return "language_model_seeds" if card.name == "language_model_variants" else "language_model"


@as_measure
def compare(
    card: Card,
    rows: Sequence[Row],
    statistic: Callable[..., Resampled],
    read: Callable[[Row], Any],
    member: str,
    *references: str | tuple[str, str],
    in_octaves: bool = False,
) -> Value | None:
    """Statistic of a card's member and other runs of the same seed, over seeds.

    Runs are compared that have the same tokenizer, and thus read the same rows. The interval is
    open, so that claims are undecided, until all seeds of the card have rows.

    Args:
      card, rows: as of a `Measure`.
      statistic: of the sums of the member and of each of `references`.
      read: makes the sums of a row; None if they were not measured.
      member: of the card.
      references: each a member, of the card of `reference_card`, or a card and its member.
      in_octaves: as of `over_seeds`.
    """

    names = [(reference_card(card, x), x) if isinstance(x, str) else x for x in references]
    groups = [runs_of(rows, name, other) for name, other in ((card.name, member), *names)]
    values = []
    for seed in sorted(set.intersection(*map(set, groups))):
        compared = [group[seed] for group in groups]
        # A tokenizer trained on another machine differs in some pieces, and so do all rows.
        if len({row.made_by.get("tokenizer") for row in compared}) > 1:
            continue
        sums = [read(row) for row in compared]
        if None not in sums:
            values.append(statistic(*sums))
    if not values:
        return None
    value = over_seeds(values, in_octaves=in_octaves)
    # Documents of one seed say nothing about the seeds that are missing.
    is_open = len(values) < len(card.seeds)
    return value._replace(low=-np.inf, high=np.inf) if is_open else value


def cost(member: str, *, reference: str = REFERENCE, **where: Any) -> Measure:
    """Return the measure of a member's loss minus that of its reference, nats per token.

    Options are those of `losses`.
    """
    return compare(measure_difference, partial(losses, **where), member, reference)


def copy_ratio(
    member: str, first: float, last: float = np.inf, *, reference: str = REFERENCE, **where: Any
) -> Measure:
    """Return the measure of a member's copy gain divided by that of its reference.

    Options are those of `gains`.
    """
    read = partial(gains, first=first, last=last, **where)
    return compare(measure_ratio, read, member, reference)


def half_lag(
    member: str, *, length: int = LENGTH, reference: str = REFERENCE, **options: Any
) -> Measure:
    """Return the measure of a member's half lag, tokens; options of `measure_half_lag`."""
    statistic, read = partial(measure_half_lag, **options), partial(gains, length=length)
    return compare(statistic, read, member, reference, in_octaves=True)


def reach(member: str, *, nearby: float = NEARBY, **options: Any) -> Measure:
    """Return the measure of the lag at which a member copies half as well as from nearby, tokens.

    "As well" is relative to its reference at the same lag. Options are those of `half_lag`.
    """
    return half_lag(member, nearby=nearby, **options)


def reach_ratio(member: str, *others: str, length: int = LENGTH, **options: Any) -> Measure:
    """Return the measure of a member's reach divided by that of another one.

    Args:
      member: of the card.
      *others: its reference, the other one, and the reference of that.
      length: context length, tokens.
      **options: of `measure_reach_ratio`.
    """
    statistic, read = partial(measure_reach_ratio, **options), partial(gains, length=length)
    return compare(statistic, read, member, *others, in_octaves=True)


def reach_growth(
    member: str, before: str, *, length: int = LENGTH, reference: str = REFERENCE, **options: Any
) -> Measure:
    """Return the measure of a member's reach divided by that in the card's measurement `before`.

    Options are those of `measure_reach_ratio`.
    """

    def read(row: Row) -> tuple[Sums, Sums] | None:
        then, now = (gains(row, length=length, measurement=name) for name in (before, WHOLE))
        return now and then and (now, then)

    def statistic(run: tuple[Sums, Sums], other: tuple[Sums, Sums]) -> Resampled:
        return measure_reach_ratio(run[0], other[0], run[1], other[1], **options)

    return compare(statistic, read, member, reference, in_octaves=True)


def unexplained_cost(member: str, *, length: int = LENGTH, reference: str = REFERENCE) -> Measure:
    """Return the measure of a member's cost beyond what its level of copying says, nats per token.

    All 17 runs after 40M tokens cost _COST_WITHOUT_COPYING + _COST_OF_LEVEL times their level, the
    copy gain at lags up to NEARBY tokens by that of the reference, within .015 nats rms.
    """

    def read(row: Row) -> tuple[Sums, Sums] | None:
        loss, gain = losses(row, length), gains(row, SHORTEST_LAG, NEARBY, length=length)
        return loss and gain and (loss, gain)

    def statistic(run: tuple[Sums, Sums], other: tuple[Sums, Sums]) -> Resampled:
        cost, level = measure_difference(run[0], other[0]), measure_ratio(run[1], other[1])
        return cost.map(lambda a, b: a - _COST_WITHOUT_COPYING - _COST_OF_LEVEL * b, level)

    return compare(statistic, read, member, reference)


def regained(member: str, measurement: str = WHOLE) -> Measure:
    """Return the measure of the regained share of base 100's missing copy gain beyond 128."""

    def read(row: Row) -> Sums | None:
        is_continued = row.card == "language_model_continued"
        return gains(row, 128, measurement=measurement if is_continued else WHOLE)

    references = ("language_model", "base=100"), ("language_model", REFERENCE)
    return compare(measure_regained, read, member, *references)


def growth(member: str) -> Measure:
    """Return the measure of a member's cost after 40M tokens minus that after 10M."""

    def statistic(run: Sums, reference: Sums, before: Sums, reference_before: Sums) -> Resampled:
        return measure_difference(run.minus(reference), before.minus(reference_before))

    seeds = "language_model_seeds"  # on the same device
    references = REFERENCE, (seeds, member), (seeds, REFERENCE)
    return compare(statistic, losses, member, *references)
