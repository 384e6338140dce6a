"""The first fall of accuracy with distance, without an assumed shape, and dips of accuracy.

Accuracy need not fall once and stay low: it revives where the slowest pair of a small base has
completed a rotation, and two heads can leave a gap between the distances that they cover. The
search for a fall therefore starts at the shortest distance. The first run of bins that is
significantly below the level, corrected for the number of runs, ends it. A nonincreasing curve
(isotonic regression) is fitted up to that run; longer distances do not affect the fit.
"""

from typing import NamedTuple

import numpy as np

from evals.estimate.statistics import Limits, expanded, limits, quantile
from evals.estimate.trials import Trials

# The ceiling uses distances up to 32 tokens, or the task's first two octaves.
_SHORT_DISTANCE = 32
_SHORT_OCTAVES = 2

# Family-wise error rate of the tests on one curve.
_ERROR_RATE = 0.05

# Half a fine bin, octaves: the resolution of a fall within one bin.
_HALF_A_BIN = 1 / 16

# Smallest dip reported, as a share of the difference between ceiling and chance.
_MIN_DIP = 0.25


class Ceiling(NamedTuple):
    """Accuracy at short distances.

    Attributes:
      accuracy: `[1 + resamples]`, the data first.
      error: its standard error.
      low: lower limit; it decides whether the task is learned.
      first: its first bin.
    """

    accuracy: np.ndarray
    error: float
    low: float
    first: int = 0


class Fall(NamedTuple):
    """Distance at which accuracy first falls below a level, log2 of tokens.

    Attributes:
      log_distance: `[1 + resamples]`, the data first; inf where it does not fall, -inf where it
        is below the level at the shortest distance.
      low, high: 95% interval over documents of one seed; -inf and inf where open.
      doubtful: whether `low` is the first bin that is not significantly above the level, because
        accuracy dips before the fall or does not fall.
      end: the last fitted bin.
    """

    log_distance: np.ndarray
    low: float
    high: float
    doubtful: bool
    end: int


class Dip(NamedTuple):
    """A dip: accuracy at its lowest and after it, with the log2 distances of both."""

    accuracy: float
    log_distance: float
    revival: float
    log_revival_distance: float


class Runs(NamedTuple):
    """Runs of neighboring bins, from `first` to `last`, each int `[runs]`."""

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def doubling(cls, num_bins: int) -> "Runs":
        """Return all runs of 1, 2, 4, ... bins: every dip has about the length of some run."""
        lengths = 2 ** np.arange(int(np.log2(num_bins)) + 1)
        starts = [np.arange(num_bins - length + 1) for length in lengths]
        first = np.concatenate(starts)
        return cls(first, first + np.repeat(lengths, [len(start) for start in starts]) - 1)


def limits_of_runs(trials: Trials, runs: Runs, z: float) -> Limits:
    """Return the accuracy within each run of bins of `trials`, `[documents, bins]`."""
    questions, right = (
        np.pad(np.cumsum(counts, 1), ((0, 0), (1, 0)))
        for counts in (trials.questions, trials.right)
    )
    first, beyond = runs.first, runs.last + 1
    return limits(questions[:, beyond] - questions[:, first], right[:, beyond] - right[:, first], z)


def ceiling(trials: Trials, resampled: Trials) -> Ceiling:
    """Return one seed's accuracy at short distances.

    The ceiling is the accuracy of the run of short bins with the highest lower limit, which avoids
    choosing a few lucky bins. The run starts at the shortest distance, or ends at the last short
    bin: some models fail at the shortest distances only.

    Args:
      trials: `[documents, bins]`.
      resampled: `[1 + resamples, fine bins]` of the same.
    """
    short = trials.x <= max(np.log2(_SHORT_DISTANCE), trials.x[0] + _SHORT_OCTAVES)
    bins, none = np.flatnonzero(short), np.zeros(short.sum(), int)
    runs = Runs(np.append(none, bins), np.append(bins, none + bins[-1]))
    z = quantile(_ERROR_RATE, len(runs.first))
    bounds = limits_of_runs(trials, runs, z)
    best = int(bounds.low.argmax())
    ends = trials.low[runs.first[best]], trials.high[runs.last[best]]
    chosen = slice(*np.searchsorted(resampled.low, (ends[0], ends[1] + 1)))
    questions, right = resampled.questions[:, chosen].sum(1), resampled.right[:, chosen].sum(1)
    low = float(bounds.low[best])
    error = (float(bounds.accuracy[best]) - low) / z
    return Ceiling(right / np.maximum(questions, 1), error, low, int(runs.first[best]))


def first_fall(trials: Trials, resampled: Trials, ceiling: Ceiling, share: float) -> Fall:
    """Return where one seed's accuracy first falls below chance + share (ceiling - chance).

    The interval is the bootstrap's over documents plus half a bin: a step between two bins has no
    spread and may lie anywhere between them. Where accuracy dips before the fall, or without one,
    the interval begins at the first bin that is not significantly above the level. Distances before
    the ceiling's first bin count only if accuracy is not below the level there: models that have
    learned from text only may fail at the shortest distances.

    Args:
      trials: `[documents, bins]`, each bin with enough trials for a test.
      resampled: `[1 + resamples, fine bins]` of the same trials.
      ceiling: of the same trials.
      share: 0.5 for L50.
    """
    level = trials.chance + share * (ceiling.accuracy - trials.chance)
    error = share * ceiling.error
    runs = Runs.doubling(len(trials.x))
    z = quantile(_ERROR_RATE, len(runs.first))
    below = limits_of_runs(trials, runs, z).below(float(level[0]), error, z)
    # Runs that dip are tested already: they need no second correction for multiple tests.
    z = quantile(_ERROR_RATE / 2)
    dips = (_rises(trials, ceiling, runs)[0] > 0).any(1)
    below |= dips & limits_of_runs(trials, runs, z).below(float(level[0]), error, z)
    if (below & (runs.last < ceiling.first)).any():
        start = int(trials.low[ceiling.first])
        later, resampled = trials.since(start), resampled.since(start)
        fall = first_fall(later, resampled, ceiling._replace(first=0), share)
        return fall._replace(end=fall.end + ceiling.first)
    fallen = bool(below.any())
    end = int(runs.last[below].min()) if fallen else len(trials.x) - 1
    fine_end = np.searchsorted(resampled.high, trials.high[end])
    log_distance = isotonic_crossing(resampled, level, int(fine_end))
    if not fallen:
        log_distance[0] = np.inf
    low, high = _interval(log_distance, len(trials.questions))
    doubtful = dip(trials, ceiling, end) is not None
    if doubtful:
        low = min(low, _first_doubtful(trials, float(level[0]), error))
    return Fall(log_distance, low, high, doubtful, end)


def _interval(log_distance: np.ndarray, num_documents: int) -> tuple[float, float]:
    """Return the 95% interval of `[1 + resamples]`; see `expanded` for the quantiles."""
    # Infinite distances become finite, far beyond all distances, so that they can be subtracted.
    centre, *resampled = np.clip(log_distance, -99, 99)
    if num_documents == 1 or not resampled:
        return -np.inf, np.inf
    low, high = np.quantile(resampled, expanded(num_documents))
    low = centre - np.hypot(max(centre - low, 0), _HALF_A_BIN)
    high = centre + np.hypot(max(high - centre, 0), _HALF_A_BIN)
    return float(low), float(high)


def _first_doubtful(trials: Trials, level: float, error: float) -> float:
    """Return log2 of the start of the first bin not significantly above the level, or inf."""
    bins = np.arange(len(trials.x))
    z = quantile(_ERROR_RATE, len(bins))
    above = limits_of_runs(trials, Runs(bins, bins), z).above(level, error, z)
    return float(np.where(above, np.inf, np.log2(np.maximum(trials.low - 1, 1))).min())


def isotonic_crossing(trials: Trials, level: np.ndarray, end: int) -> np.ndarray:
    """Return where the isotonic regression crosses `level`, `[Z]`: log2 of a distance in tokens.

    The regression pools adjacent violators; a straight line joins neighboring bins. Only its two
    steps around the crossing are computed. The crossing is where right answers minus `level` times
    the questions is largest. The step before it is the least mean of bins that end there, the step
    after it the greatest mean of bins that begin there (Robertson, Wright and Dykstra, "Order
    restricted statistical inference", 1988, section 1.4).

    Args:
      trials: `[Z, bins]`.
      level: `[Z]`.
      end: the last bin of the fit.

    Returns:
      -inf (inf) where accuracy is below (above) the level at every distance.
    """
    questions, right = (
        np.pad(np.cumsum(counts[:, : end + 1], 1), ((0, 0), (1, 0)))
        for counts in (trials.questions, trials.right)
    )
    # Number of bins before the crossing. Ties take the last: a bin may be empty in a resample.
    edge = end + 1 - (right - level[:, None] * questions)[:, ::-1].argmax(1)
    edge_column = edge[:, None]
    index = np.arange(end + 2)
    num_questions = questions - np.take_along_axis(questions, edge_column, 1)
    num_right = right - np.take_along_axis(right, edge_column, 1)
    mean = num_right / np.where(num_questions == 0, 1, num_questions)
    before = np.where((index < edge_column) & (num_questions < 0), mean, np.inf).min(1)
    after = np.where((index > edge_column) & (num_questions > 0), mean, -np.inf).max(1)
    x = trials.x[: end + 1]
    left, right_ = x[np.maximum(edge - 1, 0)], x[np.minimum(edge, end)]
    inside = (edge > 0) & (edge <= end)
    # A resample may have no question on one side; the crossing is then at the edge.
    known = inside & np.isfinite(before) & np.isfinite(after) & (before > after)
    fraction = np.zeros_like(before)
    fraction[known] = (before - level)[known] / (before - after)[known]
    crossing = left + fraction * (right_ - left)
    return np.where(inside, crossing, np.where(edge == 0, -np.inf, np.inf))


def dip(trials: Trials, ceiling: Ceiling, end: int | None = None) -> Dip | None:
    """Return the most significant dip of at least a quarter of ceiling - chance, or None.

    A dip is a run of bins whose upper limit is below the lower limit of a later run. The limits
    hold for all runs at once.

    Args:
      trials: `[documents, bins]`.
      ceiling: of the same trials.
      end: the last bin to search; None: all bins.
    """
    runs = Runs.doubling(len(trials.x) if end is None else end + 1)
    sure, accuracy = _rises(trials, ceiling, runs)
    lowest, back = np.unravel_index(sure.argmax(), sure.shape)
    if sure[lowest, back] <= 0:
        return None
    x = [trials.x[runs.first[i] : runs.last[i] + 1].mean() for i in (lowest, back)]
    return Dip(float(accuracy[lowest]), float(x[0]), float(accuracy[back]), float(x[1]))


def _rises(trials: Trials, ceiling: Ceiling, runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower limits of later runs minus the upper limits of runs, and accuracies.

    Returns:
      `[runs, later runs]`, -inf where the rise is smaller than a dip, and `[runs]`.
    """
    bounds: Limits = limits_of_runs(trials, runs, quantile(_ERROR_RATE / 2, len(runs.first)))
    rise = bounds.accuracy[None] - bounds.accuracy[:, None]
    large = rise >= _MIN_DIP * (ceiling.accuracy[0] - trials.chance)
    later = runs.first[None] > runs.last[:, None]
    return np.where(
        later & large, bounds.low[None] - bounds.high[:, None], -np.inf
    ), bounds.accuracy
