"""Effective context: the distance at which a model stops finding what it needs.

L50 is the distance at which accuracy has fallen half-way from its ceiling to chance, L85 the one
at which it is still 0.85 of the way: `fit` says how they are found. Where the slowest pair of a
small base has rotated full circle accuracy revives, so a fit over all distances (or a mean over
depths) would misread it: only the first fall counts, seen from the short side; what revives beyond
is reported and never fitted.

A ceiling below chance + 0.5 is NOT_LEARNED: a model that cannot do the task next door has no
effective context, not a short one.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

import evals
from evals.estimate.bins import bin_start
from evals.estimate.fit import Fit, first_fall, isotonic_crossing
from evals.estimate.trials import Trials
from evals.rows import Rows

NOT_LEARNED = "NOT_LEARNED"
MEASURED = "MEASURED"

_NAN = float("nan")

# The isotonic check speaks up when it finds L50 farther off than this.
_ISOTONIC_OCTAVES = 0.25

# Fewer seeds than this have no shape that a bootstrap could read.
_FEWEST_SEEDS_TO_RESAMPLE = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bin:
    """Accuracy over half an octave of distances, all seeds together.

    Attributes:
      distance: geometric mean of the trials' distances, tokens.
      low, high: shortest and longest distance of the bin, tokens, both included.
      trials: questions asked.
      accuracy: share of exact matches.
      ci_low, ci_high: Wilson's 95% interval for as many independent trials as these, clustered in
        documents, are worth.
    """

    distance: float
    low: int
    high: int
    trials: int
    accuracy: float
    ci_low: float
    ci_high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """How far one model setting sees, on one task at one context length.

    Attributes:
      task: the task.
      length: context length of the evaluation, tokens.
      trained_length: context length of the training, tokens.
      chance: accuracy of a guess.
      ceiling: accuracy at short distances: the fitted one, or the observed one if NOT_LEARNED.
      l50: distance in tokens where accuracy has fallen half-way from ceiling to chance; the
        longest (shortest) distance measured if the verdict is "> ..." ("< ..."), NaN if
        NOT_LEARNED. Over several seeds their geometric mean.
      ci_low, ci_high: 95% interval of l50; 0 and inf where it leaves the distances measured.
      l85: distance in tokens where accuracy is still 0.85 of the way, clipped like l50. It
        depends on the shape of the fall: twice as uncertain as l50, and only as good as the fit.
      l85_low, l85_high: 95% interval of l85, open like that of l50.
      isotonic_l50: l50 of the learned seeds with no shape of the fall assumed, clipped like l50.
      verdict: "MEASURED", "NOT_LEARNED" (by more than half of the seeds), "> {longest}" or
        "< {shortest}"; of l50.
      bins: accuracy by distance.
      revival: highest accuracy of a bin beyond the fit, NaN if none is out of the lowest quarter.
      revival_distance: that bin's distance, tokens.
      shortest, longest: distances measured, tokens.
      num_documents: documents of each seed.
      num_seeds: seeds evaluated.
      num_learned: those that passed the gate; the others do not enter l50.
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
    isotonic_l50: float = _NAN
    verdict: str
    bins: tuple[Bin, ...]
    revival: float = _NAN
    revival_distance: float = _NAN
    shortest: int
    longest: int
    num_documents: int
    num_seeds: int
    num_learned: int

    def __str__(self):
        if self.verdict != MEASURED:
            return self.verdict
        text = self._interval(self.l50, self.ci_low, self.ci_high)
        return f"{text}, isotonic {self.isotonic_l50:.3g}" if self.isotonic_disagrees else text

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
    def isotonic_disagrees(self) -> bool:
        """Whether the fall is no logistic curve: l50 with no shape assumed is a quarter octave off.

        With few documents it may be noise, and the interval of l50 is wide.
        """
        return abs(np.log2(self.isotonic_l50 / self.l50)) > _ISOTONIC_OCTAVES

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

    All intervals come from one bootstrap. Documents are the unit within a seed, and all seeds saw
    the same ones, so a resample of documents is shared by the seeds. Seeds are the unit outside:

    - one seed: quantiles over resamples of documents;
    - two to four: a t interval with S - 1 degrees of freedom on the mean of log2 L50. So few seeds
      have only a handful of different resamples (three for two seeds), whose quantiles reach no
      farther than the seeds themselves;
    - five or more: hierarchical, quantiles over resamples of seeds and, within, of documents.

    Which quantiles: a bootstrap over n units is too narrow by sqrt((n - 1) / n), and by the normal
    in place of t. They are moved out by as much (the expanded percentile interval of Hesterberg,
    "What teachers should know about the bootstrap", 2015, section 5.2). The noise of a seed's own
    documents, which the resamples of seeds contain already, moves them in likewise.

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
    task, length, trained_length, _, _, chance = (_only(rows, name) for name in names)
    kind = evals.parse(str(task)).kind
    if kind != "retrieval":
        raise ValueError(
            f"effective context is estimated from retrieval, and task {task} measures {kind}"
        )
    trials = Trials.of(rows)
    seeds = trials.by_seed()
    num_documents = trials.asked.shape[1]
    random = np.random.Generator(np.random.Philox(seed))
    drawn = random.multinomial(num_documents, np.full(num_documents, 1 / num_documents), resamples)
    # Resample 0 is the data itself.
    weights = np.concatenate([np.ones((1, num_documents)), drawn])
    fits = [first_fall(each.weighted(weights)) for each in seeds]
    learned = [
        (each.summed(), fit)
        for each, fit in zip(seeds, fits, strict=True)
        if fit.observed_ceiling[0] >= chance + 0.5
    ]
    unlearned = Estimate(
        task=str(task),
        length=int(length),
        trained_length=int(trained_length),
        chance=float(chance),
        ceiling=float(np.mean([fit.observed_ceiling[0] for fit in fits])),
        verdict=NOT_LEARNED,
        bins=_bins(trials.summed().weighted(weights)),
        shortest=int(rows["distance"].min()),
        longest=int(rows["distance"].max()),
        num_documents=num_documents,
        num_seeds=len(seeds),
        num_learned=len(learned),
    )
    if 2 * len(learned) < len(seeds) or not learned:
        return unlearned
    return _with_distances(unlearned, learned, random)


def _only(rows: Rows, name: str) -> Any:
    values = np.unique(rows[name])
    if len(values) > 1:
        raise ValueError(f"an estimate needs rows of one {name}, got {', '.join(map(str, values))}")
    return values[0]


def _with_distances(
    unlearned: Estimate, learned: Sequence[tuple[Trials, Fit]], random: np.random.Generator
) -> Estimate:
    """The estimate once at least half of the seeds have learned.

    Args:
      unlearned: what needs no fit.
      learned: the seeds that did: trials `[fine bins]`, and the fits of data and resamples.
      random: of the bootstrap.
    """
    shortest, longest, chance = unlearned.shortest, unlearned.longest, unlearned.chance
    fits = [fit for _, fit in learned]
    limits = float(np.log2(max(shortest, 1))), float(np.log2(longest))
    (l50, ci_low, ci_high), (l85, l85_low, l85_high) = (
        _mean_and_interval(np.array(log_distance), limits, unlearned.num_documents, random)
        for log_distance in ([fit.log_l50 for fit in fits], [fit.log_l85 for fit in fits])
    )
    isotonic = np.clip([_isotonic(trials, fit) for trials, fit in learned], *limits)
    verdict = MEASURED
    if l50 >= limits[1]:
        verdict = f"> {longest}"
    elif l50 <= limits[0]:
        verdict = f"< {shortest}"

    ceiling = float(np.mean([fit.ceiling[0] for fit in fits]))
    beyond = unlearned.bins[max(int(fit.last_bin[0]) for fit in fits) + 1 :]
    revived = [each for each in beyond if each.ci_low > chance + 0.25 * (ceiling - chance)]
    best = max(revived, key=lambda each: each.accuracy, default=None)
    return dataclasses.replace(
        unlearned,
        ceiling=ceiling,
        l50=2.0**l50,
        ci_low=2.0**ci_low,
        ci_high=2.0**ci_high,
        l85=2.0**l85,
        l85_low=2.0**l85_low,
        l85_high=2.0**l85_high,
        isotonic_l50=2.0 ** float(isotonic.mean()),
        verdict=verdict,
        revival=best.accuracy if best else _NAN,
        revival_distance=best.distance if best else _NAN,
    )


def _mean_and_interval(
    log_distance: np.ndarray,
    limits: tuple[float, float],
    num_documents: int,
    random: np.random.Generator,
) -> tuple[float, float, float]:
    """Mean over seeds of log2 of a distance, and its 95% interval; see `estimate`.

    Args:
      log_distance: `[seeds, 1 + resamples]`.
      limits: log2 of the distances measured. Beyond them a fit is extrapolation: it only tells on
        which side, and the interval's end is -inf or inf.
      num_documents: of each seed.
    """
    low, high = limits
    log_distance = np.clip(log_distance, low, high)
    data, resampled = log_distance[:, 0], log_distance[:, 1:]
    num_seeds = len(data)
    # Rounding could put the mean of seeds that are all at a limit inside it.
    centre = float(np.clip(data.mean(), data.min(), data.max()))
    if num_documents == 1:
        return centre, -np.inf, np.inf

    if num_seeds == 1:
        half = stats.t.ppf(0.975, num_documents - 1) * np.sqrt(num_documents / (num_documents - 1))
        ends = np.quantile(resampled[0], stats.norm.cdf([-half, half]))
    else:
        # Seeds differ by their own luck with the documents too; what they share comes on top.
        between = data.var(ddof=1) / num_seeds
        shared = resampled.mean(0).var() - resampled.var(1).mean() / num_seeds
        shared = max(shared * num_seeds / (num_seeds - 1), 0)
        half = stats.t.ppf(0.975, num_seeds - 1) * np.sqrt(between + shared)
        ends = np.array([centre - half, centre + half])
        if num_seeds >= _FEWEST_SEEDS_TO_RESAMPLE:
            seeds = random.integers(num_seeds, size=resampled.shape)
            means = np.take_along_axis(resampled, seeds, axis=0).mean(0)
            level = half / means.std() if means.std() else 0
            ends = np.quantile(means, stats.norm.cdf([-level, level]))

    # A seed at the limit could be anywhere beyond it, and so could the mean.
    ci_low = -np.inf if ends[0] <= low or (data <= low).any() else float(ends[0])
    ci_high = np.inf if ends[1] >= high or (data >= high).any() else float(ends[1])
    return centre, ci_low, ci_high


def _isotonic(trials: Trials, fit: Fit) -> float:
    """log2 L50 of the data, `[fine bins]`, with no shape assumed, on the range that was fitted."""
    # The ceiling as seen, not as fitted: nothing here depends on the shape.
    half = trials.chance + 0.5 * (fit.observed_ceiling[0] - trials.chance)
    fitted = np.arange(len(trials.bins)) <= fit.last_bin[0]
    return isotonic_crossing(trials.within(fitted), half)


def _bins(trials: Trials) -> tuple[Bin, ...]:
    """Accuracy by bin; `trials` `[Z, fine bins]`, the data and then its resamples."""
    log_distance = (trials.asked[0] * trials.x) @ trials.in_bin / (trials.asked[0] @ trials.in_bin)
    asked, right = trials.by_bin()
    accuracy = right / np.maximum(asked, 1)
    low, high = _wilson_interval(accuracy[0], _independent_trials(asked, accuracy))
    return tuple(
        Bin(
            distance=float(2 ** log_distance[i]),
            low=bin_start(number),
            high=bin_start(number + 1) - 1,
            trials=round(asked[0, i]),
            accuracy=float(accuracy[0, i]),
            ci_low=float(low[i]),
            ci_high=float(high[i]),
        )
        for i, number in enumerate(trials.bins)
    )


def _independent_trials(asked: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """How many independent trials each bin's trials, clustered in documents, are worth: `[bins]`.

    Questions of one document succeed together: the bootstrap says what that costs. Where all or
    none succeed it says nothing, and the trials are taken as they are.
    """
    # Over the resamples that drew the bin; where few are taken, none may have.
    drawn = asked[1:] > 0
    num_drawn = np.maximum(drawn.sum(0), 1)
    mean = np.sum(accuracy[1:] * drawn, 0) / num_drawn
    variance = np.sum((accuracy[1:] - mean) ** 2 * drawn, 0) / num_drawn
    n, p = asked[0], accuracy[0]
    independent = variance * n <= p * (1 - p)
    return np.where(independent, n, p * (1 - p) / np.where(independent, 1, variance))


def _wilson_interval(p: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Wilson's 95% interval for accuracies p of n independent trials."""
    z = stats.norm.ppf(0.975)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)
