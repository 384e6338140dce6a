"""Effective context: the distance at which a model stops finding what it needs.

L50 is the distance at which accuracy first falls half-way from its ceiling to chance, L85 the one
at which it is still 0.85 of the way: `fall` says how they are found, with no shape assumed. One
number does not say how low accuracy gets on the way or what comes back beyond, so the worst bin
and the mean accuracy stand beside it, and a dip that is surely there is said wherever L50 is.

A ceiling that is not surely above chance + 0.5 is NOT_LEARNED: a model that cannot do the task
next door has no effective context, not a short one.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

import evals
from evals.estimate import fall
from evals.estimate.bins import bin_number, bin_start
from evals.estimate.fall import Dip, Fall
from evals.estimate.limits import limits, quantile
from evals.estimate.trials import Trials
from evals.rows import Rows

# Another number where the same rows give other estimates; 1 fitted a logistic curve.
ESTIMATOR = 2

NOT_LEARNED = "NOT_LEARNED"
MEASURED = "MEASURED"

_NAN = float("nan")

# The ceiling must surely be this far above chance.
_GATE = 0.5

# Bins are joined until they have so many trials: fewer cannot be surely below anything.
_FEWEST_TRIALS = 30

# Fewer seeds than this have no shape that a bootstrap could read.
_FEWEST_SEEDS_TO_RESAMPLE = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bin:
    """Accuracy over a range of distances, all seeds together.

    Attributes:
      distance: geometric mean of the trials' distances, tokens.
      low, high: shortest and longest distance of the bin, tokens, both included.
      trials: questions asked.
      accuracy: share of exact matches.
      ci_low, ci_high: 95% interval: Wilson's for as many independent trials as these, clustered in
        documents, are worth. Of the worst bin it covers the least accuracy of all bins.
    """

    distance: float
    low: int
    high: int
    trials: int
    accuracy: float
    ci_low: float
    ci_high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seed:
    """One seed's own numbers, without intervals.

    Attributes:
      seed: its number.
      learned: whether it passed the gate; if not, l50 is NaN.
      ceiling: accuracy at short distances.
      l50: tokens, clipped to the distances measured.
      beyond: whether accuracy does not fall at any distance measured.
      worst_accuracy: of its worst bin.
      mean_accuracy: over distances.
      dips: whether accuracy surely comes back after it fell.
    """

    seed: int
    learned: bool
    ceiling: float
    l50: float = _NAN
    beyond: bool = False
    worst_accuracy: float
    mean_accuracy: float
    dips: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """How far one model setting sees, on one task at one context length.

    Attributes:
      task: the task.
      length: context length of the evaluation, tokens.
      trained_length: context length of the training, tokens.
      chance: accuracy of a guess.
      ceiling: accuracy at short distances, of the learned seeds if there are any.
      l50: distance in tokens where accuracy has first fallen half-way from ceiling to chance; the
        longest (shortest) distance measured if the verdict is "> ..." ("< ..."), NaN if
        NOT_LEARNED. Over several seeds their geometric mean.
      ci_low, ci_high: 95% interval of l50; 0 and inf where it leaves the distances measured.
      l85: distance in tokens where accuracy is still 0.85 of the way, clipped like l50. Where the
        fall is gradual it is much less certain than l50.
      l85_low, l85_high: 95% interval of l85, open like that of l50.
      verdict: "MEASURED", "NOT_LEARNED" (by more than half of the seeds), "> {longest}" (no bin is
        surely below half-way) or "< {shortest}"; of l50.
      worst: the bin of least accuracy, of bins an eighth of an octave wide or, where they have
        fewer than 30 trials, wider.
      mean_accuracy: over distances, each counting the same: of all seeds.
      mean_accuracy_low, mean_accuracy_high: its 95% interval.
      bins: accuracy by distance, in half octaves.
      dip, dip_distance: accuracy, and where (tokens), of a stretch of distances after which
        accuracy surely comes back, by a quarter of the way from chance to ceiling or more: one
        number does not describe such a curve. NaN if there is none. Of several seeds the deepest.
      revival, revival_distance: what it comes back to, and where.
      floor: accuracy at all distances beyond the first fall, NaN if there is none.
      shortest, longest: distances measured, tokens.
      num_documents: documents of each seed.
      num_seeds: seeds evaluated.
      num_learned: those that passed the gate; the others do not enter l50.
      seeds: each seed's own numbers.
    """

    task: str
    length: int
    trained_length: int
    chance: float
    ceiling: float
    l50: float = _NAN
    ci_low: float = _NAN
    ci_high: float = _NAN
    l85: float = _NAN
    l85_low: float = _NAN
    l85_high: float = _NAN
    verdict: str
    worst: Bin
    mean_accuracy: float
    mean_accuracy_low: float
    mean_accuracy_high: float
    bins: tuple[Bin, ...]
    dip: float = _NAN
    dip_distance: float = _NAN
    revival: float = _NAN
    revival_distance: float = _NAN
    floor: float = _NAN
    shortest: int
    longest: int
    num_documents: int
    num_seeds: int
    num_learned: int
    seeds: tuple[Seed, ...]

    def __str__(self):
        text = self.verdict
        if self.verdict == MEASURED:
            text = self._interval(self.l50, self.ci_low, self.ci_high)
        return f"{text}, dips" if self.dips else text

    @property
    def dips(self) -> bool:
        """Whether accuracy comes back after it fell: one number does not describe the curve."""
        return not math.isnan(self.dip)

    @property
    def l85_text(self) -> str:
        """L85 as `str` writes L50; it may be measured where L50 is not."""
        if self.verdict == NOT_LEARNED:
            return NOT_LEARNED
        # Clipped to these by way of its logarithm.
        if math.isclose(self.l85, self.longest):
            return f"> {self.longest}"
        if math.isclose(self.l85, max(self.shortest, 1)):
            return f"< {self.shortest}"
        return self._interval(self.l85, self.l85_low, self.l85_high)

    @property
    def worst_text(self) -> str:
        """The worst bin's accuracy with its interval, and its distances."""
        worst = self.worst
        return f"{worst.accuracy:.2f} [{worst.ci_low:.2f}, {worst.ci_high:.2f}] at " + (
            f"{worst.low}" if worst.low == worst.high else f"{worst.low}-{worst.high}"
        )

    @property
    def mean_text(self) -> str:
        """The mean accuracy with its interval."""
        ends = f"[{self.mean_accuracy_low:.2f}, {self.mean_accuracy_high:.2f}]"
        return f"{self.mean_accuracy:.2f} {ends}"

    @property
    def accuracies(self) -> str:
        """What stands beside L50 where there is room for little."""
        return f"mean {self.mean_accuracy:.2f}, worst {self.worst.accuracy:.2f}"

    @property
    def octaves(self) -> float:
        """Width of l50's interval, as far as it lies within the distances measured."""
        shortest = max(self.shortest, 1)
        low, high = np.clip([self.ci_low, self.ci_high], shortest, self.longest)
        return float(np.log2(high / low))

    def _interval(self, value: float, low: float, high: float) -> str:
        from_ = f"< {self.shortest}" if low == 0 else f"{low:.3g}"
        to = f"> {self.longest}" if np.isinf(high) else f"{high:.3g}"
        return f"{value:.3g} [{from_}, {to}]"


def estimate(rows: Rows, *, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Effective context from the rows of one task, length and model setting.

    Args:
      rows: columns of `evals.rows`; of several rounds (`evals.estimate.sequential`), all of them.
      resamples: bootstrap resamples.
      seed: of the bootstrap.

    Raises:
      ValueError: if rows are empty, mix tasks, lengths, variants or checkpoints, or if the task
        does not measure retrieval.
    """
    if not len(rows["task"]):
        raise ValueError("no rows to estimate from; evaluate first")
    names = ("task", "length", "trained_length", "rotary", "step", "chance")
    task, length, trained_length, *_ = (_only(rows, name) for name in names)
    kind = evals.parse(str(task)).kind
    if kind != "retrieval":
        raise ValueError(
            f"effective context is estimated from retrieval, and task {task} measures {kind}"
        )
    lengths = int(length), int(trained_length)
    trials = Trials.of(rows)
    return estimate_trials(trials, task=str(task), lengths=lengths, resamples=resamples, seed=seed)


def _only(rows: Rows, name: str) -> Any:
    values = np.unique(rows[name])
    if len(values) > 1:
        raise ValueError(f"an estimate needs rows of one {name}, got {', '.join(map(str, values))}")
    return values[0]


def estimate_trials(
    trials: Trials, *, task: str, lengths: tuple[int, int], resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Effective context from counts: what `estimate` says of the rows that they were counted from.

    One seed's interval of L50 is that of `fall.first_fall`. Seeds are the unit where there are
    several, and documents come on top: all seeds saw the same ones, so a bootstrap resample of
    documents is shared by the seeds.

    - two to four seeds: a t interval with S - 1 degrees of freedom on the mean of log2 L50. So few
      seeds have only a handful of different resamples (three for two seeds), whose quantiles reach
      no farther than the seeds themselves;
    - five or more: hierarchical, quantiles over resamples of seeds and, within, of documents, which
      ones as in `fall.expanded`; the noise of a seed's own documents, which the resamples of seeds
      contain already, moves them in likewise.

    Neither is narrower than the seeds' own intervals are on average; the bias that the bootstrap
    finds widens the end that it points away from. Where a seed dips, the lower end allows for the
    first place where it may have fallen.

    Args:
      trials: `[seeds, documents, fine bins]`, of `Trials.of` or `Trials.of_counts`.
      task: its name.
      lengths: context lengths of the evaluation and of the training, tokens.
      resamples: bootstrap resamples.
      seed: of the bootstrap.
    """
    random = np.random.Generator(np.random.Philox(seed))
    readings = _read(trials, resamples, random)
    learned = [each for each in readings if each.own.learned]
    mean, mean_low, mean_high = _mean_and_interval(
        np.array([each.mean_accuracy for each in readings]), trials.asked.shape[1], random
    )
    found = Estimate(
        task=task,
        length=lengths[0],
        trained_length=lengths[1],
        chance=trials.chance,
        ceiling=float(np.mean([each.own.ceiling for each in learned or readings])),
        verdict=NOT_LEARNED,
        worst=_worst(trials.of_at_least(_FEWEST_TRIALS).summed()),
        mean_accuracy=mean,
        mean_accuracy_low=max(mean_low, 0.0),
        mean_accuracy_high=min(mean_high, 1.0),
        bins=_half_octaves(trials.summed()),
        shortest=int(trials.low[0]),
        longest=int(trials.high[-1]),
        num_documents=trials.asked.shape[1],
        num_seeds=len(readings),
        num_learned=len(learned),
        seeds=tuple(each.own for each in readings),
    )
    if 2 * len(learned) < len(readings) or not learned:
        return found
    return _with_distances(found, learned, random)


class _Reading(NamedTuple):
    """What one seed's trials say: its own numbers, and with resamples what intervals need."""

    own: Seed
    mean_accuracy: np.ndarray  # [1 + resamples], the data first
    l50: Fall
    l85: Fall
    dip: Dip | None
    floor: float


def _read(trials: Trials, resamples: int, random: np.random.Generator) -> list[_Reading]:
    """Every seed's; all share the resamples of documents."""
    num_documents = trials.asked.shape[1]
    drawn = random.multinomial(num_documents, np.full(num_documents, 1 / num_documents), resamples)
    weights = np.concatenate([np.ones((1, num_documents)), drawn])
    joined = trials.of_at_least(_FEWEST_TRIALS)
    found = []
    for seed, fine, own in zip(trials.seeds, trials.by_seed(), joined.by_seed(), strict=True):
        resampled = fine.weighted(weights)
        ceiling = fall.ceiling(own, resampled)
        l50, l85 = (fall.first_fall(own, resampled, ceiling, share) for share in (0.5, 0.85))
        dip = fall.dip(own, ceiling)
        mean_accuracy = resampled.mean_accuracy()
        learned = ceiling.low >= trials.chance + _GATE
        shortest, longest = max(int(trials.low[0]), 1), int(trials.high[-1])
        numbers = Seed(
            seed=int(seed),
            learned=learned,
            ceiling=float(ceiling.accuracy[0]),
            l50=float(np.clip(2 ** l50.log_distance[0], shortest, longest)) if learned else _NAN,
            beyond=learned and bool(l50.log_distance[0] == np.inf),
            worst_accuracy=_worst(own).accuracy,
            mean_accuracy=float(mean_accuracy[0]),
            dips=learned and dip is not None,
        )
        found.append(_Reading(numbers, mean_accuracy, l50, l85, dip, _floor(own, l50)))
    return found


def _floor(trials: Trials, l50: Fall) -> float:
    """Accuracy at all distances beyond those that the fall was fitted to."""
    asked, right = (counts[:, l50.end + 1 :].sum() for counts in (trials.asked, trials.right))
    return float(right / asked) if asked else _NAN


def _with_distances(
    found: Estimate, learned: Sequence[_Reading], random: np.random.Generator
) -> Estimate:
    """The estimate once at least half of the seeds have learned."""
    limits = float(np.log2(max(found.shortest, 1))), float(np.log2(found.longest))
    (l50, ci_low, ci_high), (l85, l85_low, l85_high) = (
        _of_falls(falls, limits, found.num_documents, random)
        for falls in ([each.l50 for each in learned], [each.l85 for each in learned])
    )
    verdict = MEASURED
    if l50 >= limits[1]:
        verdict = f"> {found.longest}"
    elif l50 <= limits[0]:
        verdict = f"< {found.shortest}"
    dips = [each.dip for each in learned if each.dip]
    dip = min(dips, key=lambda dip: dip.accuracy, default=Dip(_NAN, _NAN, _NAN, _NAN))
    floors = [each.floor for each in learned if not math.isnan(each.floor)]
    return dataclasses.replace(
        found,
        l50=2.0**l50,
        ci_low=2.0**ci_low,
        ci_high=2.0**ci_high,
        l85=2.0**l85,
        l85_low=2.0**l85_low,
        l85_high=2.0**l85_high,
        verdict=verdict,
        dip=dip.accuracy,
        dip_distance=2.0**dip.log_distance,
        revival=dip.revival,
        revival_distance=2.0**dip.log_revival_distance,
        floor=float(np.mean(floors)) if floors else _NAN,
    )


def _of_falls(
    falls: Sequence[Fall],
    limits: tuple[float, float],
    num_documents: int,
    random: np.random.Generator,
) -> tuple[float, float, float]:
    """Mean over seeds of log2 of a distance, and its 95% interval; see `estimate_trials`.

    Args:
      falls: of the seeds.
      limits: log2 of the distances measured, beyond which nothing is known but the side: the
        interval's end is -inf or inf.
      num_documents: of each seed.
    """
    low, high = limits
    log_distance = np.clip([fall.log_distance for fall in falls], low, high)
    own_low, own_high = (
        np.clip([getattr(fall, end) for fall in falls], low, high) for end in ("low", "high")
    )
    centre, ci_low, ci_high = _mean_and_interval(log_distance, num_documents, random)
    if len(falls) > 1:
        # A shelf near half-way pulls all seeds one way, and so it does their resamples.
        bias = float(log_distance[:, 1:].mean()) - centre if log_distance.shape[1] > 1 else 0.0
        ci_low, ci_high = ci_low - max(bias, 0), ci_high - min(bias, 0)
        if any(fall.doubtful for fall in falls):
            ci_low = min(ci_low, own_low.mean() - _t_half(own_low))
    ci_low, ci_high = float(min(ci_low, own_low.mean())), float(max(ci_high, own_high.mean()))
    if num_documents == 1:
        return centre, -np.inf, np.inf
    # A seed at the limit could be anywhere beyond it, and so could the mean.
    data = log_distance[:, 0]
    open_low = ci_low <= low or (data <= low).any()
    open_high = ci_high >= high or (data >= high).any()
    return centre, -np.inf if open_low else ci_low, np.inf if open_high else ci_high


def _mean_and_interval(
    values: np.ndarray, num_documents: int, random: np.random.Generator
) -> tuple[float, float, float]:
    """Mean over seeds and its 95% interval; see `estimate_trials`.

    Args:
      values: `[seeds, 1 + resamples]`, the data first.
      num_documents: of each seed.
    """
    data, resampled = values[:, 0], values[:, 1:]
    num_seeds = len(data)
    # Rounding could put the mean of seeds that are all at a limit inside it.
    centre = float(np.clip(data.mean(), data.min(), data.max()))
    if num_documents == 1:
        return centre, -np.inf, np.inf
    if num_seeds == 1:
        low, high = np.quantile(resampled[0], fall.expanded(num_documents))
        return centre, float(low), float(high)
    # Seeds differ by their own luck with the documents too; what they share comes on top.
    shared = resampled.mean(0).var() - resampled.var(1).mean() / num_seeds
    shared = max(shared * num_seeds / (num_seeds - 1), 0)
    half = _t_half(data, shared)
    if num_seeds < _FEWEST_SEEDS_TO_RESAMPLE:
        return centre, centre - float(half), centre + float(half)
    seeds = random.integers(num_seeds, size=resampled.shape)
    means = np.take_along_axis(resampled, seeds, axis=0).mean(0)
    level = half / means.std() if means.std() else 0
    low, high = np.quantile(means, special.ndtr([-level, level]))
    return centre, float(low), float(high)


def _t_half(values: np.ndarray, shared: float = 0.0) -> float:
    """Half of the 95% t interval of the mean of `[seeds]`, which share a variance."""
    reach = special.stdtrit(len(values) - 1, 0.975)
    return float(reach * np.sqrt(values.var(ddof=1) / len(values) + shared))


def _half_octaves(trials: Trials) -> tuple[Bin, ...]:
    """Accuracy by bins of half an octave; `trials` `[documents, fine bins]`."""
    joined = trials.joined(bin_number(trials.low))
    return tuple(
        dataclasses.replace(each, low=bin_start(number), high=bin_start(number + 1) - 1)
        for each, number in zip(
            _bins(joined, quantile(0.025)), np.unique(bin_number(trials.low)).tolist(), strict=True
        )
    )


def _worst(trials: Trials) -> Bin:
    """The bin of least accuracy; `trials` `[documents, bins]`.

    Each bin's own interval would be too high for it, as it is the least of many: so are both ends,
    with limits that hold for all bins at once, the least of all bins.
    """
    bins = _bins(trials, quantile(0.025, len(trials.x)))
    worst = min(bins, key=lambda each: each.accuracy)
    low, high = min(each.ci_low for each in bins), min(each.ci_high for each in bins)
    return dataclasses.replace(worst, ci_low=low, ci_high=high)


def _bins(trials: Trials, z: float) -> list[Bin]:
    """Each bin of `[documents, bins]`, with limits at z standard deviations."""
    found = limits(trials.asked, trials.right, z)
    return [
        Bin(
            distance=float(2 ** trials.x[i]),
            low=int(trials.low[i]),
            high=int(trials.high[i]),
            trials=round(trials.asked[:, i].sum()),
            accuracy=float(found.accuracy[i]),
            ci_low=float(found.low[i]),
            ci_high=float(found.high[i]),
        )
        for i in range(len(trials.x))
    ]
