"""The first fall of accuracy with distance, without an assumed shape, and dips of accuracy.

Accuracy need not fall once and stay low: it revives where the slowest pair of a small base has
completed a rotation, and two heads can leave a gap between the distances that they cover. The
search for a fall therefore starts at the shortest distance. The first run of bins that is
significantly below the level, corrected for the number of runs, ends it. A nonincreasing curve
(isotonic regression) is fitted up to that run; longer distances do not affect the fit.

That accuracy does not fall needs evidence too. It is said only if every window is significantly
above the level: windows of a quarter octave with an error rate of 2.5%, and of an eighth with 5%,
since they have half as many answers. The claim needs all tests to pass (an intersection-union test;
Berger, "Multiparameter hypothesis testing and acceptance sampling", 1982): whichever window is
below the level, its own test bounds the error over all windows. For the same reason the first
window that fails its test bounds the fall from below.
"""

from typing import NamedTuple

import numpy as np

from ropewalk.evals.estimate.statistics import (
    MIN_DOCUMENTS,
    Limits,
    limits,
    quantile,
    t_quantile,
)
from ropewalk.evals.estimate.trials import Trials

# The ceiling uses distances up to 32 tokens, or the task's first two octaves.
_SHORT_DISTANCE = 32
_SHORT_OCTAVES = 2

# Family-wise error rate of the tests on one curve.
_ERROR_RATE = 0.05

# Smallest dip reported, as a share of the difference between ceiling and chance.
_MIN_DIP = 0.25

# Windows that show accuracy above the level: width in octaves, error rate, and the answers needed
# to tell an accuracy of three quarters from one half: z^2 (3/4) (1/4) / (1/4)^2, and a few more.
_WINDOWS = (1 / 4, 0.025, 16), (1 / 8, 0.05, 8)
# Documents for which a window rarely has too few: it needs more than z^2.
_WINDOW_DOCUMENTS = 6

# Outcomes of the search for a fall.
MEASURED, BEYOND = "MEASURED", "BEYOND"
UNDETERMINED, TOO_FEW_ANSWERS = "UNDETERMINED", "TOO_FEW_ANSWERS"


class Ceiling(NamedTuple):
    """Accuracy at short distances.

    Attributes:
      accuracy: `[1 + resamples]`, the data first.
      error: its standard error.
      low: lower limit, corrected for the choice of bins; it decides whether the task is learned.
      high: upper 97.5% limit.
      first: its first bin.
    """

    accuracy: np.ndarray
    error: float
    low: float
    high: float = 1.0
    first: int = 0


class Fall(NamedTuple):
    """Distance at which accuracy first falls below a level, log2 of tokens.

    Attributes:
      log_distance: `[1 + resamples]`, the data first; inf where it does not fall, -inf where it
        is below the level at the shortest distance.
      low, high: 95% interval over documents of one seed; -inf and inf where open.
      doubtful: whether `low` is the first window that is not significantly above the level, because
        accuracy may have fallen and recovered before.
      end: the last fitted bin.
      outcome: MEASURED, BEYOND (above the level at all distances), UNDETERMINED (no fall is
        significant, and neither is its absence), or TOO_FEW_ANSWERS (the same, for that reason).
    """

    log_distance: np.ndarray
    low: float
    high: float
    doubtful: bool
    end: int
    outcome: str


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

    @classmethod
    def windows(cls, trials: Trials, octaves: float) -> "Runs":
        """Return the shortest run of at least `octaves` from each bin on, ends included.

        No run reaches over a gap, distances without questions: right answers before the gap say
        nothing of those after it. The bins before a gap, or the last bins, may be fewer `octaves`.
        """
        start, end = np.log2(trials.low), np.log2(trials.high + 1)
        goal = start + octaves - 1e-9
        last = np.minimum(np.searchsorted(end, goal), np.searchsorted(start, goal) - 1)
        is_complete = end[last] >= goal
        # A run that is cut short begins one bin earlier, unless that bin is before a gap too.
        index = np.arange(len(end))
        continues = np.append(False, (last[:-1] >= index[1:]) | (start[1:] <= end[:-1]))
        chosen = is_complete | ~continues | np.append(False, is_complete[:-1])
        first = np.where(is_complete | ~continues, index, index - 1)
        return cls(first[chosen], last[chosen])


def limits_of_runs(trials: Trials, runs: Runs, z: float) -> Limits:
    """Return the accuracy within each run of bins of `trials`, `[documents, bins]`."""
    questions, right = (_sum_runs(numbers, runs) for numbers in (trials.questions, trials.right))
    return limits(questions, right, z, trials.correlation)


def _sum_runs(numbers: np.ndarray, runs: Runs) -> np.ndarray:
    """Sum `[documents, bins]` within each run: `[documents, runs]`."""
    total = np.pad(np.cumsum(numbers, 1), ((0, 0), (1, 0)))
    return total[:, runs.last + 1] - total[:, runs.first]


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
    high = float(limits_of_runs(trials, runs, quantile(_ERROR_RATE / 2)).high[best])
    return Ceiling(right / np.maximum(questions, 1), error, low, high, int(runs.first[best]))


class Curve(NamedTuple):
    """Counts of one seed.

    Attributes:
      fine: `[documents, fine bins]`.
      joined: `[documents, bins]`, each bin with enough trials for a test.
      resampled: `[1 + resamples, fine bins]`, the data first.
    """

    fine: Trials
    joined: Trials
    resampled: Trials

    def since(self, distance: int) -> "Curve":
        """Return the bins from `distance` on."""
        return Curve(*(trials.since(distance) for trials in self))


def first_fall(curve: Curve, ceiling: Ceiling, share: float) -> Fall:
    """Return where one seed's accuracy first falls below chance + share (ceiling - chance).

    The interval is the union of all distances where accuracy may be at the level. If accuracy may
    have fallen and recovered before, it starts at the first window that is not surely above.
    If the shortest distances are not above the level, the search starts at the ceiling's first bin:
    models that have learned from text only may fail there, and are then not above it everywhere.

    Args:
      curve: counts of the seed.
      ceiling: of the same counts.
      share: 0.5 for L50.
    """
    fine, trials, resampled = curve
    levels = trials.chance + share * (ceiling.accuracy - trials.chance)
    level = float(levels[0]), share * ceiling.error
    windows = _test_windows(fine, level)
    unsure = TOO_FEW_ANSWERS if (windows.is_small & ~windows.above).any() else UNDETERMINED
    if ceiling.first and not windows.above[0]:
        later = curve.since(int(fine.low[ceiling.first]))
        fall = first_fall(later, ceiling._replace(first=0), share)
        if fall.outcome == BEYOND:
            fall = fall._replace(low=-np.inf, outcome=unsure)
        return fall._replace(end=fall.end + len(trials.x) - len(later.joined.x))
    below, end = _first_below(trials, ceiling, level)
    fine_end = int(np.searchsorted(fine.high, trials.high[end]))
    log_distance = isotonic_crossing(resampled, levels, fine_end)
    lowest = _first_doubtful(fine, windows)
    if not below and windows.above.all():
        longest = float(np.log2(fine.high[-1]))
        return Fall(np.full_like(log_distance, np.inf), longest, np.inf, False, end, BEYOND)
    if not below:
        log_distance[0] = np.inf
        return Fall(log_distance, lowest, np.inf, True, end, unsure)
    # A resample without the documents of the last run does not fall there.
    log_distance = np.minimum(log_distance, np.log2(fine.high[fine_end]))
    low, high = _possible_distances(fine, float(log_distance[0]), fine_end, level)
    before = np.log2(windows.high) < low
    doubtful = dip(trials, ceiling, end) is not None
    doubtful |= bool((before & (windows.accuracy <= level[0])).any())
    if doubtful:
        low = min(low, lowest)
    return Fall(log_distance, float(low), float(high), doubtful, end, MEASURED)


class _Windows(NamedTuple):
    """Windows of all widths, the shortest distances first, each `[windows]`.

    Attributes:
      low, high: first and last distance, tokens.
      accuracy: share of right answers.
      above: whether accuracy is significantly above the level.
      is_small: whether answers are too few for the test.
    """

    low: np.ndarray
    high: np.ndarray
    accuracy: np.ndarray
    above: np.ndarray
    is_small: np.ndarray


def _test_windows(fine: Trials, level: tuple[float, float]) -> _Windows:
    """Test whether accuracy is above a level, known with a standard error, in every window."""
    parts = []
    for octaves, error_rate, needed in _WINDOWS:
        runs, z = Runs.windows(fine, octaves), t_quantile(max(len(fine.questions), 2), error_rate)
        bounds = limits_of_runs(fine, runs, z)
        ends = fine.low[runs.first], fine.high[runs.last]
        # If all answers of a document are alike, the lower limit of k documents is k / (k + z^2).
        questions = _sum_runs(fine.questions, runs)
        has_few_documents = np.count_nonzero(questions, axis=0) <= z**2
        above = bounds.above(*level, z) & ~has_few_documents
        is_small = has_few_documents | (questions.sum(0) < needed)
        parts.append((*ends, bounds.accuracy, above, is_small))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return _Windows(*(column[order] for column in columns))


def _first_doubtful(fine: Trials, windows: _Windows) -> float:
    """Return log2 of the last distance before the first window that is not above the level, or inf.

    Windows that only overlap with it may be above, and the fall may lie within them.
    """
    first = windows.low[~windows.above].min(initial=windows.high[-1])
    low = windows.low[windows.high >= first].min()
    before = _ends_before(fine)[np.searchsorted(fine.low, low)]
    return np.inf if windows.above.all() else float(before)


def _ends_before(fine: Trials) -> np.ndarray:
    """Return log2 of the last distance before each bin, `[bins]`; -inf before the first."""
    return np.append(-np.inf, np.log2(fine.high[:-1]))


def _first_below(trials: Trials, ceiling: Ceiling, level: tuple[float, float]) -> tuple[bool, int]:
    """Return whether a run is significantly below the level, and the last bin of the fit."""
    runs = Runs.doubling(len(trials.x))
    z = quantile(_ERROR_RATE, len(runs.first))
    below = limits_of_runs(trials, runs, z).below(*level, z)
    # Runs that dip are tested already: they need no second correction for multiple tests.
    z = quantile(_ERROR_RATE / 2)
    dips = (_rises(trials, ceiling, runs)[0] > 0).any(1)
    below |= dips & limits_of_runs(trials, runs, z).below(*level, z)
    return bool(below.any()), int(runs.last[below].min(initial=len(trials.x) - 1))


def _possible_distances(
    fine: Trials, crossing: float, end: int, level: tuple[float, float]
) -> tuple[float, float]:
    """Return the ends of the distances where accuracy may cross the level: the 95% interval, log2.

    A distance before the fitted crossing may be the fall unless the run from there to the crossing
    is significantly above the level; a distance after it, unless the run from the crossing to there
    is significantly below. Every run is tested, so a shelf near the level belongs to the interval
    from end to end, although resamples of the fit may never leave one of its ends. The error rate
    is a fifth of that of an interval, because the fit has chosen the crossing so that both runs
    look clear.

    Args:
      fine: `[documents, fine bins]`.
      crossing: log2 of the fitted distance.
      end: the last bin of the fit.
      level: the level and its standard error.
    """
    z = t_quantile(max(len(fine.questions), 2), _ERROR_RATE / 10)
    edge = int(np.searchsorted(fine.x, crossing))
    low, high = -np.inf, np.inf
    if edge:
        first = np.arange(edge)
        bounds = limits_of_runs(fine, Runs(first, np.full(edge, edge - 1)), z)
        is_possible = ~bounds.above(*level, z)
        # The fall may lie anywhere after the bin before, so in a gap too.
        low = _ends_before(fine)[first[is_possible]]
        # Few documents may all ask at the first distances of a bin.
        is_sparse = np.count_nonzero(fine.questions[:, edge - 1]) < MIN_DOCUMENTS
        last_above = (fine.low if is_sparse else fine.high)[edge - 1]
        low = low.min(initial=np.log2(last_above))
    if edge <= end:
        last = np.arange(edge, end + 1)
        bounds = limits_of_runs(fine, Runs(np.full(len(last), edge), last), z)
        # The fall may lie within the next bin, whose mean is lower, or beyond the last.
        ends = np.append(np.log2(fine.high), np.inf)
        next_ = np.minimum(last[~bounds.below(*level, z)] + 1, end + (end == len(fine.high) - 1))
        high = ends[next_].max(initial=ends[edge])
    return float(low), float(high)


def documents_enough(fine: Trials) -> int:
    """Return the number of documents with which no window has too few answers.

    The poorest half octave counts, because a single window of few documents varies too much.
    """
    octaves, _, answers = _WINDOWS[0]
    questions = _sum_runs(fine.questions, Runs.windows(fine, 2 * octaves))
    least = questions.sum(0).min(), np.count_nonzero(questions, axis=0).min()
    factors = np.array([answers, _WINDOW_DOCUMENTS]) / np.maximum(np.divide(least, 2), 0.5)
    needed = 1.5 * max(1.0, *factors) * len(fine.questions)
    return max(MIN_DOCUMENTS, 8 * int(np.ceil(needed / 8)))


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
