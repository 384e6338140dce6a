"""The first fall of accuracy with distance, with no shape assumed, and dips that one number hides.

Accuracy need not fall once and stay low: where the slowest pair of a small base has rotated full
circle it revives, and two heads can leave a hole between what they see. So a fall is looked for
from the short side, bin by bin: it is there once some run of bins is below the level by more than
chance would allow among as many runs as there are. The best curve that never rises (isotonic
regression) is fitted up to there, and what lies beyond does not move it.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from evals.estimate.limits import Limits, Runs, of_runs, quantile
from evals.estimate.trials import Trials

# The ceiling is read off distances up to 32 tokens, or two octaves where a task starts later.
_SHORT_DISTANCE = 32
_SHORT_OCTAVES = 2

# What is said to be surely so is wrong for this share of all curves at most.
_DOUBT = 0.05

# A bin is an eighth of an octave, and a fall within it may lie half of that aside.
_HALF_A_BIN = 1 / 16

# Less than this share of the way from chance to ceiling is no dip worth a word.
_DIP = 0.25


class Ceiling(NamedTuple):
    """Accuracy at short distances.

    Attributes:
      accuracy: `[1 + resamples]`, the data first.
      error: its standard error.
      low: lower limit, by which a task counts as learned.
    """

    accuracy: np.ndarray
    error: float
    low: float


class Fall(NamedTuple):
    """Where accuracy first falls below a level, log2 of a distance in tokens.

    Attributes:
      log_distance: `[1 + resamples]`, the data first; inf where it does not fall, -inf where it
        is below from the start.
      low, high: 95% interval by the documents of this one seed; -inf and inf where open.
      doubtful: whether `low` is the first bin that is not surely above the level, as there is no
        fall, or a dip before it.
      end: the last bin that was fitted.
    """

    log_distance: np.ndarray
    low: float
    high: float
    doubtful: bool
    end: int


class Dip(NamedTuple):
    """Accuracy that comes back: its lowest place and the best beyond, with their log2 distances."""

    accuracy: float
    log_distance: float
    revival: float
    log_revival_distance: float


def ceiling(trials: Trials, resampled: Trials) -> Ceiling:
    """Of one seed: accuracy of the shortest bins together, as many of them as show it most surely.

    The ones whose lower limit is highest, so that it is not read off a few lucky ones. Where a
    model is blind next door the bins at the end of the short distances may show it instead.

    Args:
      trials: `[documents, bins]`.
      resampled: `[1 + resamples, fine bins]` of the same.
    """
    short = trials.x <= max(np.log2(_SHORT_DISTANCE), trials.x[0] + _SHORT_OCTAVES)
    bins, none = np.flatnonzero(short), np.zeros(short.sum(), int)
    runs = Runs(np.append(none, bins), np.append(bins, none + bins[-1]))
    z = quantile(_DOUBT, len(runs.first))
    found = of_runs(trials, runs, z)
    best = int(found.low.argmax())
    ends = trials.low[runs.first[best]], trials.high[runs.last[best]]
    chosen = slice(*np.searchsorted(resampled.low, (ends[0], ends[1] + 1)))
    asked, right = resampled.asked[:, chosen].sum(1), resampled.right[:, chosen].sum(1)
    low = float(found.low[best])
    return Ceiling(right / np.maximum(asked, 1), (float(found.accuracy[best]) - low) / z, low)


def first_fall(trials: Trials, resampled: Trials, ceiling: Ceiling, share: float) -> Fall:
    """Of one seed: where accuracy is first below `share` of the way from chance to ceiling.

    The interval is the bootstrap's over documents, and half a bin more: a step between two bins has
    no spread, and may lie anywhere between them. Where accuracy dips before the fall, or in place
    of one, it reaches down to the first bin that is not surely above the level.

    Args:
      trials: `[documents, bins]`, each with trials enough to tell.
      resampled: `[1 + resamples, fine bins]` of the same: the regression pools what it needs to.
      ceiling: of the same.
      share: 0.5 for L50.
    """
    level = trials.chance + share * (ceiling.accuracy - trials.chance)
    error = share * ceiling.error
    runs = Runs.doubling(len(trials.x))
    z = quantile(_DOUBT, len(runs.first))
    below = of_runs(trials, runs, z).below(float(level[0]), error, z)
    # Of runs that surely dip, one need not be told from all others once more.
    z = quantile(_DOUBT / 2)
    dips = (_sure_rises(trials, ceiling, runs)[0] > 0).any(1)
    below |= dips & of_runs(trials, runs, z).below(float(level[0]), error, z)
    fallen = bool(below.any())
    end = int(runs.last[below].min()) if fallen else len(trials.x) - 1
    fine_end = np.searchsorted(resampled.high, trials.high[end])
    log_distance = isotonic_crossing(resampled, level, int(fine_end))
    if not fallen:
        log_distance[0] = np.inf
    low, high = _interval(log_distance, len(trials.asked))
    doubtful = dip(trials, ceiling, end) is not None
    if doubtful:
        low = min(low, _first_doubtful(trials, float(level[0]), error))
    return Fall(log_distance, low, high, doubtful, end)


def _interval(log_distance: np.ndarray, num_documents: int) -> tuple[float, float]:
    """Of `[1 + resamples]`; see `effective_context.estimate_trials` for the quantiles."""
    # Numbers that can be subtracted, far beyond all distances.
    centre, *resampled = np.clip(log_distance, -99, 99)
    if num_documents == 1 or not resampled:
        return -np.inf, np.inf
    low, high = np.quantile(resampled, expanded(num_documents))
    low = centre - np.hypot(max(centre - low, 0), _HALF_A_BIN)
    high = centre + np.hypot(max(high - centre, 0), _HALF_A_BIN)
    return float(low), float(high)


def expanded(num_units: int) -> np.ndarray:
    """The two quantiles over resamples of so many units that are the ends of a 95% interval.

    A bootstrap over n units is too narrow by sqrt((n - 1) / n), and by the normal in place of t:
    they are moved out by as much (the expanded percentile interval of Hesterberg, "What teachers
    should know about the bootstrap", 2015, section 5.2).
    """
    reach = special.stdtrit(num_units - 1, 0.975) * np.sqrt(num_units / (num_units - 1))
    return special.ndtr([-reach, reach])


def _first_doubtful(trials: Trials, level: float, error: float) -> float:
    """Where the first bin that is not surely above the level begins; inf if all are."""
    bins = np.arange(len(trials.x))
    z = quantile(_DOUBT, len(bins))
    above = of_runs(trials, Runs(bins, bins), z).above(level, error, z)
    return float(np.where(above, np.inf, np.log2(np.maximum(trials.low - 1, 1))).min())


def isotonic_crossing(trials: Trials, level: np.ndarray, end: int) -> np.ndarray:
    """Where the best curve that never rises crosses `level`, `[Z]`: log2 of a distance in tokens.

    Pool adjacent violators, then a straight line between neighbouring bins. Of that regression
    only the two steps around the crossing are needed. It crosses where right answers have exceeded
    `level` times the questions by most, and the step before is the least mean of bins that end
    there, the step after the greatest mean of those that begin there (Robertson, Wright and
    Dykstra, "Order restricted statistical inference", 1988, section 1.4).

    Args:
      trials: `[Z, bins]`.
      level: `[Z]`.
      end: the last bin fitted.

    Returns:
      -inf (inf) where accuracy is below (above) the level at every distance.
    """
    asked, right = (
        np.pad(np.cumsum(counts[:, : end + 1], 1), ((0, 0), (1, 0)))
        for counts in (trials.asked, trials.right)
    )
    # As many bins lie before the crossing; of equals the last, as no resample may have a bin's
    # documents.
    edge = end + 1 - (right - level[:, None] * asked)[:, ::-1].argmax(1)
    here = edge[:, None]
    place = np.arange(end + 2)
    num_asked = asked - np.take_along_axis(asked, here, 1)
    num_right = right - np.take_along_axis(right, here, 1)
    mean = num_right / np.where(num_asked == 0, 1, num_asked)
    before = np.where((place < here) & (num_asked < 0), mean, np.inf).min(1)
    after = np.where((place > here) & (num_asked > 0), mean, -np.inf).max(1)
    x = trials.x[: end + 1]
    left, right_ = x[np.maximum(edge - 1, 0)], x[np.minimum(edge, end)]
    inside = (edge > 0) & (edge <= end)
    # A resample may have no question on one side: then the edge itself.
    known = inside & np.isfinite(before) & np.isfinite(after) & (before > after)
    way = np.zeros_like(before)
    way[known] = (before - level)[known] / (before - after)[known]
    crossing = left + way * (right_ - left)
    return np.where(inside, crossing, np.where(edge == 0, -np.inf, np.inf))


def dip(trials: Trials, ceiling: Ceiling, end: int | None = None) -> Dip | None:
    """Accuracy that surely comes back, by a quarter of the way from chance to ceiling, or None.

    A run of bins whose lower limit is above the upper limit of an earlier run, with limits that
    hold for all runs at once.

    Args:
      trials: `[documents, bins]`.
      ceiling: of the same.
      end: the last bin looked at; None: of all.
    """
    runs = Runs.doubling(len(trials.x) if end is None else end + 1)
    sure, accuracy = _sure_rises(trials, ceiling, runs)
    lowest, back = np.unravel_index(sure.argmax(), sure.shape)
    if sure[lowest, back] <= 0:
        return None
    x = [trials.x[runs.first[i] : runs.last[i] + 1].mean() for i in (lowest, back)]
    return Dip(float(accuracy[lowest]), float(x[0]), float(accuracy[back]), float(x[1]))


def _sure_rises(trials: Trials, ceiling: Ceiling, runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """By how much a later run's lower limit is above a run's upper one, and the runs' accuracy.

    Returns:
      `[runs, later runs]`, -inf where the rise is less than a dip's, and `[runs]`.
    """
    found: Limits = of_runs(trials, runs, quantile(_DOUBT / 2, len(runs.first)))
    rise = found.accuracy[None] - found.accuracy[:, None]
    large = rise >= _DIP * (ceiling.accuracy[0] - trials.chance)
    later = runs.first[None] > runs.last[:, None]
    return np.where(later & large, found.low[None] - found.high[:, None], -np.inf), found.accuracy
