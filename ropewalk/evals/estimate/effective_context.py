"""Effective context: the distance at which a model stops retrieving.

L50 is the distance at which accuracy first falls half-way from its ceiling to chance, L85 the
distance at which it is still chance + 0.85 (ceiling - chance). `fall` computes both without an
assumed shape. One number does not describe how low accuracy falls or whether it recovers, so every
estimate includes the worst bin, the mean accuracy and the most significant dip.

A model that fails at short distances has no effective context, rather than a short one: the verdict
is NOT_LEARNED if the ceiling is not significantly half-way from chance to 1, LOW_CEILING if it is,
but is still significantly below 0.95. Rows do not tell why the ceiling is low: too little training,
masked heads, or text unlike that of the training. "> longest" needs evidence at every distance;
without it, and without a significant fall, the verdict is UNDETERMINED, or TOO_FEW_ANSWERS if more
documents of the same kind would tell.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ropewalk import evals
from ropewalk.evals.estimate import fall, statistics
from ropewalk.evals.estimate.bins import bin_number, bin_start, group_bins
from ropewalk.evals.estimate.fall import BEYOND, Ceiling, Curve, Dip, Fall
from ropewalk.evals.estimate.statistics import Limits, t_half_width
from ropewalk.evals.estimate.trials import Trials
from ropewalk.evals.rows import Rows
from ropewalk.utils.messages import rounded

# Increment when the same rows give another L50. Version 1 fitted a logistic curve; version 2 took
# answers of few documents that are alike for independent.
ESTIMATOR = 3

NOT_LEARNED = "NOT_LEARNED"
LOW_CEILING = "LOW_CEILING"
MEASURED = fall.MEASURED
UNDETERMINED = fall.UNDETERMINED
TOO_FEW_ANSWERS = fall.TOO_FEW_ANSWERS

_NAN = float("nan")

# The ceiling may not be significantly below this number, a convention (docs/evaluation.md).
_HIGH_CEILING = 0.95

# Bins are joined until they have this many trials, the fewest for a useful test.
_MIN_TRIALS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bin:
    """Accuracy over a range of distances, all seeds together.

    Attributes:
      distance: geometric mean of the trials' distances, tokens.
      low, high: shortest and longest distance of the bin, tokens, both included.
      trials: number of questions.
      accuracy: share of exact matches.
      ci_low, ci_high: 95% interval: Wilson's, for the effective number of independent trials
        (`limits`); NaN with fewer than 8 documents. The worst bin's interval covers the least
        accuracy of all bins.
    """

    distance: float
    low: int
    high: int
    trials: int
    accuracy: float
    ci_low: float
    ci_high: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Seed:
    """Numbers of one seed, without intervals, and resamples for the intervals over seeds.

    Attributes:
      seed: number of the seed.
      num_documents: documents with answers of the seed.
      verdict: as `Estimate.verdict`.
      learned: whether the ceiling is high enough; if not, l50 is NaN.
      l50: tokens, clipped to the distances measured.
      worst_accuracy: accuracy of the worst bin.
      mean_accuracies: mean over distances, `[1 + resamples]`, the data first.
      ceiling, falls, dip: of its accuracy; falls to the levels of L50 and of L85.
      floor: accuracy beyond the last bin of the fit, NaN if there is none.
    """

    seed: int
    num_documents: int
    verdict: str
    learned: bool
    l50: float
    worst_accuracy: float
    mean_accuracies: np.ndarray = dataclasses.field(repr=False)
    ceiling: Ceiling = dataclasses.field(repr=False)
    falls: tuple[Fall, Fall] = dataclasses.field(repr=False)
    dip: Dip | None
    floor: float

    @property
    def mean_accuracy(self) -> float:
        """Mean over distances."""
        return float(self.mean_accuracies[0])

    @property
    def is_beyond(self) -> bool:
        """True if accuracy is significantly above half-way at every distance measured."""
        return self.verdict.startswith(">")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Effective context of one model setting, on one task at one context length.

    Attributes:
      task: expression of the task.
      length: context length of the evaluation, tokens.
      trained_length: context length of the training, tokens.
      chance: accuracy of a guess.
      ceiling: accuracy at short distances, mean over learned seeds, or over all if none learned.
      ceiling_low, ceiling_high: its 95% interval, mean over the same seeds.
      l50: distance in tokens where accuracy has first fallen half-way from ceiling to chance; the
        longest (shortest) distance measured if the verdict is "> ..." ("< ..."), NaN if it is
        NOT_LEARNED, TOO_FEW_ANSWERS or UNDETERMINED. Geometric mean over seeds. No effective
        context if the verdict is LOW_CEILING.
      ci_low, ci_high: 95% interval of l50; 0 and inf where it extends beyond the distances
        measured.
      l85: distance in tokens where accuracy is still chance + 0.85 (ceiling - chance), like l50.
        For a gradual fall l85 is much less certain than l50.
      l85_low, l85_high: 95% interval of l85, open like the interval of l50.
      verdict: of l50,
        "MEASURED": accuracy falls significantly below half-way;
        "> {longest}": every quarter octave of distances is significantly above half-way;
        "< {shortest}";
        "UNDETERMINED": neither, for at least one seed, or one seed is "> ..." and another falls;
        l50 lies between ci_low and ci_high;
        "TOO_FEW_ANSWERS": the same for too few answers, or fewer than 8 documents;
        "LOW_CEILING", "NOT_LEARNED": the ceiling is too low, in more than half of the seeds.
        Seeds with too few answers are left out of a pool whose others have more documents.
      l85_verdict: of l85.
      documents_needed: number of documents with which no distance has too few answers, if the
        verdict is TOO_FEW_ANSWERS, else 0.
      worst: the bin of least accuracy. Bins are an eighth of an octave wide, or wider where they
        have fewer than 30 trials.
      mean_accuracy: mean over distances and all seeds; every distance has equal weight.
      mean_accuracy_low, mean_accuracy_high: 95% interval of the mean accuracy; NaN with fewer
        than 8 documents.
      bins: accuracy by distance, in half octaves.
      dip, dip_distance: accuracy and distance (tokens) of a dip, after which accuracy rises
        significantly by a quarter of ceiling - chance or more. NaN if there is none; the deepest
        of several seeds.
      revival, revival_distance: accuracy after the dip, and its distance.
      floor: accuracy at all distances beyond the first fall, NaN without a fall.
      shortest, longest: distances measured, tokens; 0 counts as 1.
      num_documents: documents of each seed.
      num_seeds: seeds evaluated.
      num_learned: seeds that learned the task; the others are not in l50.
      num_too_few: seeds left out because they have too few answers.
      seeds: numbers of each seed.
    """

    task: str
    length: int
    trained_length: int
    chance: float
    ceiling: float
    ceiling_low: float
    ceiling_high: float
    l50: float = _NAN
    ci_low: float = _NAN
    ci_high: float = _NAN
    l85: float = _NAN
    l85_low: float = _NAN
    l85_high: float = _NAN
    verdict: str
    l85_verdict: str = ""
    documents_needed: int = 0
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
    num_too_few: int = 0
    seeds: tuple[Seed, ...]

    def __str__(self):
        text = self._text(self.verdict, self.l50, self.ci_low, self.ci_high)
        left_out = {"too few answers": self.num_too_few, NOT_LEARNED: self.num_not_learned}
        for reason, count in left_out.items():
            if count and self.verdict not in (TOO_FEW_ANSWERS, NOT_LEARNED):
                text += f", without {count} of {self.num_seeds} seeds: {reason}"
        return f"{text}, dips" if self.dips else text

    @property
    def dips(self) -> bool:
        """True if accuracy recovers after a fall, so that l50 alone does not describe it."""
        return not math.isnan(self.dip)

    @property
    def num_not_learned(self) -> int:
        """Seeds left out of l50 because they did not learn the task."""
        return self.num_seeds - self.num_too_few - self.num_learned

    @property
    def has_l50(self) -> bool:
        """True if l50, or an interval of it, is known: the model has learned and was asked."""
        return self.verdict not in (NOT_LEARNED, LOW_CEILING, TOO_FEW_ANSWERS)

    @property
    def mark(self) -> float:
        """Distance of a mark in figures, tokens: l50, or the lower end if undetermined, or NaN."""
        if not self.has_l50:
            return _NAN
        return max(self.ci_low, self.shortest) if self.verdict == UNDETERMINED else self.l50

    @property
    def is_beyond(self) -> bool:
        """True if accuracy is significantly above half-way at every distance measured."""
        return self.verdict == f"> {self.longest}"

    @property
    def l85_text(self) -> str:
        """Text of L85, formatted like L50; L85 may be measured where L50 is not."""
        if not self.has_l50:
            return self._text(self.verdict, self.l50, self.ci_low, self.ci_high)
        return self._text(self.l85_verdict, self.l85, self.l85_low, self.l85_high)

    @property
    def worst_text(self) -> str:
        """Text of the worst bin: accuracy, interval and distances."""
        worst = self.worst
        return f"{_with_interval(worst.accuracy, worst.ci_low, worst.ci_high)} at " + (
            f"{worst.low}" if worst.low == worst.high else f"{worst.low}-{worst.high}"
        )

    @property
    def mean_text(self) -> str:
        """Text of the mean accuracy with its interval."""
        return _with_interval(self.mean_accuracy, self.mean_accuracy_low, self.mean_accuracy_high)

    @property
    def accuracies(self) -> str:
        """Short text of the mean and the worst accuracy."""
        return f"mean {self.mean_accuracy:.2f}, worst {self.worst.accuracy:.2f}"

    def _text(self, verdict: str, value: float, low: float, high: float) -> str:
        """Return the text of a distance by its verdict."""
        start = f"< {self.shortest}" if low == 0 else rounded(low)
        end = f"> {self.longest}" if np.isinf(high) else rounded(high)
        between = "" if low == 0 and np.isinf(high) else f" between {start} and {end}"
        texts = {
            MEASURED: f"{rounded(value)} [{start}, {end}]",
            UNDETERMINED: f"undetermined{between}",
            TOO_FEW_ANSWERS: f"{TOO_FEW_ANSWERS}, {self.documents_needed} documents are enough",
            LOW_CEILING: f"{LOW_CEILING}, ceiling "
            + _with_interval(self.ceiling, self.ceiling_low, self.ceiling_high),
        }
        return texts.get(verdict, verdict)


def _with_interval(value: float, low: float, high: float) -> str:
    interval = "too few documents" if math.isnan(low) else f"{low:.2f}, {high:.2f}"
    return f"{value:.2f} [{interval}]"


def estimate(rows: Rows, *, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Estimate the effective context from rows of one task, length and model setting.

    Args:
      rows: columns of `evals.rows`.
      resamples: number of bootstrap resamples.
      seed: seed of the bootstrap.

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
            f"task {task} measures {kind}; effective context needs a task of kind retrieval"
        )
    lengths = int(length), int(trained_length)
    trials = Trials.from_rows(rows)
    return estimate_trials(trials, task=str(task), lengths=lengths, resamples=resamples, seed=seed)


def _only(rows: Rows, name: str) -> Any:
    values = np.unique(rows[name])
    if len(values) > 1:
        raise ValueError(f"an estimate needs rows of one {name}, got {', '.join(map(str, values))}")
    return values[0]


def estimate_trials(
    trials: Trials, *, task: str, lengths: tuple[int, int], resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Estimate the effective context from counts; equal to `estimate` on the counted rows.

    With one seed, the interval of L50 is the interval of `fall.first_fall`. With several seeds the
    unit is the seed, and the variance over documents is added: all seeds are evaluated on the same
    documents, so they share each bootstrap resample of documents.

    - two to four seeds: a t interval with S - 1 degrees of freedom on the mean of log2 L50. So few
      seeds have only a handful of different resamples (three for two seeds), whose quantiles never
      lie outside the range of the seeds;
    - five or more: a hierarchical bootstrap, with quantiles over resamples of seeds and, within a
      seed, of documents. The quantiles are expanded (`statistics.expanded`) and corrected for the
      noise of each seed's documents, which the resamples of seeds contain already.

    Neither interval is narrower than the average interval of one seed. The bootstrap's estimate of
    bias widens the end on the other side. If accuracy of a seed dips, the lower end includes the
    first distance at which it may have fallen.

    Args:
      trials: `[seeds, documents, fine bins]`, from `Trials.from_rows` or `Trials.from_counts`.
      task: expression of the task.
      lengths: context lengths of the evaluation and of the training, tokens.
      resamples: number of bootstrap resamples.
      seed: seed of the bootstrap.
    """
    random = np.random.Generator(np.random.Philox(seed))
    seeds = _read_seeds(trials, resamples, random)
    is_used = np.array([seed.verdict != TOO_FEW_ANSWERS for seed in seeds])
    sizes = np.array([float(seed.num_documents) for seed in seeds])
    # Of equal documents, seeds without a fall need most: those with one alone would be a selection.
    is_used &= sizes[~is_used].max(initial=0) < sizes[is_used].min(initial=np.inf)
    used = trials.of_seeds(is_used | ~is_used.any())
    used_seeds = [seed for seed in seeds if seed.seed in used.seeds]
    learned = [seed for seed in used_seeds if seed.learned]
    num_documents = min(seed.num_documents for seed in used_seeds)
    mean, mean_low, mean_high = _mean_accuracy(used_seeds, used, random)
    ceilings = [seed.ceiling for seed in learned or used_seeds]
    worst = _worst(used.with_min_trials(_MIN_TRIALS).summed())
    if num_documents < statistics.MIN_DOCUMENTS:
        worst = dataclasses.replace(worst, ci_low=_NAN, ci_high=_NAN)
    result = Estimate(
        task=task,
        length=lengths[0],
        trained_length=lengths[1],
        chance=trials.chance,
        ceiling=float(np.mean([ceiling.accuracy[0] for ceiling in ceilings])),
        ceiling_low=float(np.mean([ceiling.low for ceiling in ceilings])),
        ceiling_high=float(np.mean([ceiling.high for ceiling in ceilings])),
        verdict=NOT_LEARNED,
        worst=worst,
        mean_accuracy=mean,
        mean_accuracy_low=mean_low,
        mean_accuracy_high=mean_high,
        bins=_half_octaves(used.summed(), has_intervals=num_documents >= statistics.MIN_DOCUMENTS),
        shortest=int(trials.low[0]),
        longest=int(trials.high[-1]),
        num_documents=trials.questions.shape[1],
        num_seeds=len(seeds),
        num_learned=len(learned),
        num_too_few=int((~is_used).sum()),
        seeds=tuple(seeds),
    )
    if not is_used.any():
        needed = max(fall.documents_enough(trials.of_seed(i)[0]) for i in range(len(seeds)))
        return dataclasses.replace(result, verdict=TOO_FEW_ANSWERS, documents_needed=needed)
    if 2 * len(learned) < len(used_seeds) or not learned:
        return result
    result = _with_distances(result, learned, num_documents, random)
    low = [seed.verdict == LOW_CEILING for seed in learned]
    if 2 * sum(low) > len(learned):
        return dataclasses.replace(result, verdict=LOW_CEILING)
    return result


def _read_seeds(trials: Trials, resamples: int, random: np.random.Generator) -> list[Seed]:
    """Read every seed; all seeds share the resamples of documents."""
    num_documents = trials.questions.shape[1]
    drawn = random.multinomial(num_documents, np.full(num_documents, 1 / num_documents), resamples)
    weights = np.concatenate([np.ones((1, num_documents)), drawn])
    shortest, longest = int(trials.low[0]), int(trials.high[-1])
    seeds = []
    for number, seed in enumerate(trials.seeds.tolist()):
        fine, documents = trials.of_seed(number)
        joined = fine.with_min_trials(_MIN_TRIALS)
        curve = Curve(fine, joined, fine.weighted(weights[:, documents]))
        ceiling = fall.ceiling(fine, curve.resampled)
        l50, l85 = (fall.first_fall(curve, ceiling, share) for share in (0.5, 0.85))
        learned = ceiling.low >= _gate(trials.chance)
        beyond_fit = joined.questions[:, l50.end + 1 :].sum()
        floor = joined.right[:, l50.end + 1 :].sum() / beyond_fit if beyond_fit else _NAN
        seeds.append(
            Seed(
                seed=seed,
                num_documents=int(documents.sum()),
                verdict=_verdict(trials.chance, ceiling, l50, int(documents.sum())),
                learned=learned,
                l50=float(np.clip(2 ** l50.log_distance[0], shortest, longest))
                if learned
                else _NAN,
                worst_accuracy=_worst(joined).accuracy,
                mean_accuracies=curve.resampled.mean_accuracy(),
                ceiling=ceiling,
                falls=(l50, l85),
                dip=fall.dip(joined, ceiling),
                floor=float(floor),
            )
        )
    return seeds


def _gate(chance: float) -> float:
    """Return the lowest ceiling of a model that has learned the task."""
    return (1 + chance) / 2


def _verdict(chance: float, ceiling: Ceiling, l50: Fall, num_documents: int) -> str:
    """Return the verdict on one seed."""
    gate = _gate(chance)
    if ceiling.high < gate:
        return NOT_LEARNED
    if num_documents < statistics.MIN_DOCUMENTS:
        return TOO_FEW_ANSWERS
    if ceiling.low < gate:
        return TOO_FEW_ANSWERS if ceiling.high >= _HIGH_CEILING else NOT_LEARNED
    if ceiling.high < _HIGH_CEILING:
        return LOW_CEILING
    return f"> {2**l50.low:.0f}" if l50.outcome == BEYOND else l50.outcome


def _mean_accuracy(
    seeds: Sequence[Seed], trials: Trials, random: np.random.Generator
) -> tuple[float, float, float]:
    """Return the mean accuracy over seeds and its 95% interval, NaN for too few documents."""
    num_documents = min(seed.num_documents for seed in seeds)
    values = np.array([seed.mean_accuracies for seed in seeds])
    if num_documents < statistics.MIN_DOCUMENTS:
        return float(values[:, 0].mean()), _NAN, _NAN
    mean, low, high = statistics.mean_over_seeds(values, num_documents, random)
    if len(seeds) == 1 or mean in (0, 1):
        # Not the quantiles over resamples, which are not skewed enough near 0 and 1. If no resample
        # differs, all answers are alike; all seeds share the luck of the documents.
        variance = values.mean(0)[1:].var() * num_documents / (num_documents - 1)
        alike = trials.summed().summed()
        shares = alike.widths() / alike.widths().sum()
        independent = len(seeds) * (shares**2 / alike.questions).sum()
        if variance:
            # Bins whose few answers are all alike add none; they have that of their neighbors.
            group = group_bins(alike.questions, _MIN_TRIALS)
            right, questions = (np.bincount(group, n) for n in (alike.right, alike.questions))
            accuracy = ((right + 0.5) / (questions + 1))[group]
            floor = (shares**2 * accuracy * (1 - accuracy) / alike.questions).sum()
            variance = max(variance, floor)
        effective_trials = mean * (1 - mean) / variance if variance else 1 / independent
        z = statistics.t_quantile(num_documents)
        _, low, high = map(float, statistics.wilson(np.array(mean), np.array(effective_trials), z))
    return mean, max(low, 0.0), min(high, 1.0)


def _with_distances(
    result: Estimate, learned: Sequence[Seed], num_documents: int, random: np.random.Generator
) -> Estimate:
    """Add the distances to an estimate of which at least half of the seeds have learned."""
    range_limits = float(np.log2(result.shortest)), float(np.log2(result.longest))

    def over_seeds(falls: Sequence[Fall]) -> tuple[float, float, float, str]:
        """Return the mean distance, its interval, and the verdict."""
        mean, low, high = _mean_fall(falls, range_limits, num_documents, random)
        value, verdict = 2.0**mean, MEASURED
        outcomes = {seed.outcome for seed in falls}
        # The mean of a fall and of a distance beyond the longest is only known to be larger.
        if outcomes & {UNDETERMINED, TOO_FEW_ANSWERS} or outcomes == {MEASURED, fall.BEYOND}:
            value, verdict = _NAN, UNDETERMINED
        elif mean >= range_limits[1]:
            verdict = f"> {result.longest}"
        elif mean <= range_limits[0]:
            verdict = f"< {result.shortest}"
        return value, 2.0**low, 2.0**high, verdict

    l50_falls, l85_falls = zip(*(seed.falls for seed in learned), strict=True)
    l50, ci_low, ci_high, verdict = over_seeds(l50_falls)
    l85, l85_low, l85_high, l85_verdict = over_seeds(l85_falls)
    dips = [seed.dip for seed in learned if seed.dip]
    dip = min(dips, key=lambda dip: dip.accuracy, default=Dip(_NAN, _NAN, _NAN, _NAN))
    floors = [seed.floor for seed in learned if not math.isnan(seed.floor)]
    return dataclasses.replace(
        result,
        l50=l50,
        ci_low=ci_low,
        ci_high=ci_high,
        l85=l85,
        l85_low=l85_low,
        l85_high=l85_high,
        verdict=verdict,
        l85_verdict=l85_verdict,
        dip=dip.accuracy,
        dip_distance=2.0**dip.log_distance,
        revival=dip.revival,
        revival_distance=2.0**dip.log_revival_distance,
        floor=float(np.mean(floors)) if floors else _NAN,
    )


def _mean_fall(
    falls: Sequence[Fall],
    limits: tuple[float, float],
    num_documents: int,
    random: np.random.Generator,
) -> tuple[float, float, float]:
    """Return the mean over seeds of log2 of a distance and its 95% interval.

    Args:
      falls: falls of the seeds; see `estimate_trials` for the intervals.
      limits: log2 of the shortest and longest distance. An interval that extends beyond one of
        them is open there: its end is -inf or inf.
      num_documents: documents of each seed.
    """
    low, high = limits
    log_distance = np.clip([fall.log_distance for fall in falls], low, high)
    lows, highs, data = np.array([(fall.low, fall.high, fall.log_distance[0]) for fall in falls]).T
    seed_lows, seed_highs = np.clip([lows, highs], low, high)
    center, ci_low, ci_high = statistics.mean_over_seeds(log_distance, num_documents, random)
    if len(falls) > 1:
        # A plateau near half-way biases all seeds, and their resamples, in the same direction.
        bias = float(log_distance[:, 1:].mean()) - center if log_distance.shape[1] > 1 else 0.0
        ci_low, ci_high = ci_low - max(bias, 0), ci_high - min(bias, 0)
        if any(fall.doubtful for fall in falls):
            ci_low = min(ci_low, seed_lows.mean() - t_half_width(seed_lows))
    ci_low, ci_high = float(min(ci_low, seed_lows.mean())), float(max(ci_high, seed_highs.mean()))
    # The fall of a seed beyond a limit may lie anywhere there, and so may the mean.
    open_low = ci_low < low or (data < low).any() or (ci_low == low > lows.min())
    open_high = ci_high > high or (data > high).any() or (ci_high == high < highs.max())
    return center, -np.inf if open_low else ci_low, np.inf if open_high else ci_high


def _half_octaves(trials: Trials, *, has_intervals: bool) -> tuple[Bin, ...]:
    """Return accuracy by bins of half an octave; `trials` `[documents, fine bins]`."""
    numbers = np.unique(bin_number(trials.low)).tolist()
    low, high = ([bin_start(number + i) - i for number in numbers] for i in (0, 1))
    joined = trials.joined(bin_number(trials.low))
    joined = dataclasses.replace(joined, low=np.array(low), high=np.array(high))
    z = statistics.quantile(0.025)
    bounds = statistics.limits(joined.questions, joined.right, z, trials.correlation)
    if not has_intervals:
        bounds = bounds._replace(low=bounds.low * _NAN, high=bounds.high * _NAN)
    return tuple(_bins(joined, bounds))


def _worst(trials: Trials) -> Bin:
    """Return the bin of least accuracy; `trials` `[documents, bins]`.

    The minimum of many bins is biased, so the bin's own interval would be too high. Both ends of
    the interval are therefore minima over all bins, with limits that hold for all bins at once.
    """
    counts, error_rate = (trials.questions, trials.right), 0.025 / len(trials.x)
    bounds = statistics.exact_limits(*counts, error_rate, trials.correlation)
    bins = _bins(trials, bounds)
    worst = min(bins, key=lambda bin_: bin_.accuracy)
    low, high = min(bin_.ci_low for bin_ in bins), min(bin_.ci_high for bin_ in bins)
    return dataclasses.replace(worst, ci_low=low, ci_high=high)


def _bins(trials: Trials, bounds: Limits) -> list[Bin]:
    """Return each bin of `[documents, bins]`, with its limits."""
    return [
        Bin(
            distance=float(2 ** trials.x[i]),
            low=int(trials.low[i]),
            high=int(trials.high[i]),
            trials=round(trials.questions[:, i].sum()),
            accuracy=float(bounds.accuracy[i]),
            ci_low=float(bounds.low[i]),
            ci_high=float(bounds.high[i]),
        )
        for i in range(len(trials.x))
    ]
