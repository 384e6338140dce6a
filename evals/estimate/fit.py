"""The first fall of accuracy with distance, fitted.

    A(m) = chance + (ceiling - chance) / (1 + exp(slope (log2 m - log2 L50)))

so L50 is where accuracy is half-way from chance to its ceiling, and L85 = L50 2^(-1.735 / slope)
where it is still 0.85 of the way. Where the slowest pair of a small base has rotated full circle
accuracy revives, so a fit over all distances would misread it. The fit ends with the first two
neighbouring bins that lie in the lowest quarter between chance and ceiling or, where the dip is
narrower than that, with its lowest bin.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from evals.estimate.trials import Trials

# The ceiling is read off distances up to 32 tokens, or two octaves where a task starts later,
# from as many bins (shortest first) as show it best and have enough trials together.
_SHORT_DISTANCE = 32
_SHORT_OCTAVES = 2
_CEILING_TRIALS = 30

# Accuracy below half-way that comes back above it, by at least this share of the way from chance
# to ceiling and in bins of at least so many trials, is a revival; less may be noise.
_REVIVAL_RISE = 1 / 3
_REVIVAL_TRIALS = 30

# 0.85 of the way from chance to ceiling lies this many units of the logistic before its middle.
_L85_LOGITS = float(special.logit(0.85))


class Fit(NamedTuple):
    """Fits of Z resamples, each field `[Z]`.

    Attributes:
      log_l50, log_l85: log2 of a distance in tokens, which may lie beyond those measured.
      ceiling: of the fitted curve.
      observed_ceiling: of the shortest bins.
      last_bin: the last one fitted.
    """

    log_l50: np.ndarray
    log_l85: np.ndarray
    ceiling: np.ndarray
    observed_ceiling: np.ndarray
    last_bin: np.ndarray


def first_fall(trials: Trials) -> Fit:
    """Fits the first fall of accuracy in each resample; `trials` `[Z, fine bins]`, data first."""
    asked, right = trials.by_bin()
    accuracy = right / np.maximum(asked, 1)
    x = trials.x @ trials.in_bin / trials.in_bin.sum(0)
    observed = _observed_ceiling(asked, right, x)
    way = observed[:, None] - trials.chance
    low = (asked > 0) & (accuracy < trials.chance + 0.25 * way)
    # Read off the data, for all resamples: few questions drawn twice look like a revival too.
    share = (accuracy[0] - trials.chance) / max(observed[0] - trials.chance, 1e-9)
    last_bin = np.minimum(_end_of_fall(low), _lowest_before_revival(share, asked[0]))
    fitted = np.arange(len(x)) <= last_bin[:, None]
    fallen = (asked > 0) & fitted & (accuracy < trials.chance + 0.5 * way)
    start = np.where(fallen.any(1), x[fallen.argmax(1)] - 0.25, trials.x[-1] + 0.5)
    log_l50, slope, ceiling = _logistic(trials.within(fitted), observed, start)
    return Fit(log_l50, log_l50 - _L85_LOGITS / slope, ceiling, observed, last_bin)


def _observed_ceiling(asked: np.ndarray, right: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Accuracy `[Z]` of the shortest bins together, as many of them as show it best."""
    short = x <= max(np.log2(_SHORT_DISTANCE), x[0] + _SHORT_OCTAVES)
    summed = np.cumsum(asked[:, short], 1)
    accuracy = np.cumsum(right[:, short], 1) / np.maximum(summed, 1)
    enough = summed >= np.minimum(_CEILING_TRIALS, summed[:, -1:])
    return np.where(enough, accuracy, 0).max(1)


def _end_of_fall(low: np.ndarray) -> np.ndarray:
    """The second of the first two neighbouring bins that are low; else the last bin, `[Z]`."""
    dip = low & np.pad(low[:, 1:], ((0, 0), (0, 1)))
    return np.where(dip.any(1), dip.argmax(1) + 1, low.shape[1] - 1)


def _lowest_before_revival(way: np.ndarray, asked: np.ndarray) -> int:
    """The lowest bin between the first below half-way and one well above it; else the last bin.

    Args:
      way: `[bins]`, share of the way from chance to ceiling.
      asked: `[bins]`.
    """
    (sure,) = np.nonzero(asked >= _REVIVAL_TRIALS)
    lowest = None
    for number in sure:
        if lowest is None:
            lowest = number if way[number] < 0.5 else None
        elif way[number] >= max(0.5, way[lowest] + _REVIVAL_RISE):
            return int(lowest)
        elif way[number] < way[lowest]:
            lowest = number
    return len(way) - 1


def isotonic_crossing(trials: Trials, threshold: float) -> float:
    """Where the best curve that never rises crosses `threshold`: a check with no shape assumed.

    Pool adjacent violators, then a straight line between neighbouring fine bins.

    Args:
      trials: `[fine bins]`, none beyond the fitted range: a revival would be pooled with the fall.
      threshold: accuracy looked for.

    Returns:
      log2 of the distance in tokens; -inf (inf) if accuracy is below (above) at every distance.
    """
    seen = trials.asked > 0
    asked, right, x = trials.asked[seen], trials.right[seen], trials.x[seen]
    accuracy = optimize.isotonic_regression(right / asked, weights=asked, increasing=False).x
    below = accuracy < threshold
    if not below.any():
        return np.inf
    after = int(below.argmax())
    if after == 0:
        return -np.inf
    around = [after, after - 1]
    return float(np.interp(threshold, accuracy[around], x[around]))


def _logistic(
    trials: Trials, observed: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Binomial likelihood of A(x), maximised for all resamples at once.

    Parameters: the logit of the ceiling's share of the way from chance to 1, the log of the slope
    per octave, log2 L50. Weak normal priors (ceiling: as observed, one logit; slope: 4 an octave,
    a factor e; L50: where accuracy is first seen below half, 8 octaves) keep a perfect step, or a
    curve that never falls, finite.

    Returns:
      log2 L50, slope per octave and ceiling, each `[Z]`.
    """
    x, chance = trials.x, trials.chance
    share = np.clip((observed - chance) / (1 - chance), 0.02, 0.99)
    prior = np.stack([special.logit(share), np.full_like(start, np.log(4)), start], 1)
    precision = np.array([1, 1, 8]) ** -2.0

    def posterior(parameters, z):
        to_ceiling, log_slope, log_l50 = (column[:, None] for column in parameters.T)
        asked, right = trials.asked[z], trials.right[z]
        ceiling, slope = special.expit(to_ceiling), np.exp(log_slope)
        steepness = -slope * (x - log_l50)
        fall = special.expit(steepness)
        p = np.clip(chance + (1 - chance) * ceiling * fall, 1e-12, 1 - 1e-12)
        off_prior = parameters - prior[z]
        value = (right * np.log(p) + (asked - right) * np.log1p(-p)).sum(1)
        value -= 0.5 * (precision * off_prior**2).sum(1)
        p_steepness = (1 - chance) * ceiling * fall * (1 - fall)
        p_to_ceiling = (1 - chance) * ceiling * (1 - ceiling) * fall
        gradient_p = np.stack([p_to_ceiling, p_steepness * steepness, p_steepness * slope], 1)
        weighted = gradient_p / (p * (1 - p))[:, None]
        score = (weighted @ (right - asked * p)[:, :, None])[:, :, 0]
        information = (weighted * asked[:, None]) @ gradient_p.swapaxes(1, 2)
        return value, score - precision * off_prior, information + np.diag(precision)

    to_ceiling, log_slope, log_l50 = _maximum(posterior, prior).T
    return log_l50, np.exp(log_slope), chance + (1 - chance) * special.expit(to_ceiling)


def _maximum(posterior: Callable[..., tuple[np.ndarray, ...]], start: np.ndarray) -> np.ndarray:
    """Where each of Z posteriors is highest, `[Z, P]`: Levenberg-Marquardt on the information.

    Args:
      posterior: of parameters `[z, P]` and which of the Z they are for, `[z]`: its logarithm
        `[z]`, the gradient of that `[z, P]` and the expected information `[z, P, P]`.
      start: `[Z, P]`.
    """
    parameters = start.copy()
    damping = np.full(len(start), 0.01)
    moving = np.arange(len(start))
    value, score, information = posterior(parameters, moving)
    for _ in range(100):
        damped = information[moving] * (1 + damping[moving, None, None] * np.eye(start.shape[1]))
        step = np.clip(np.linalg.solve(damped, score[moving, :, None])[:, :, 0], -1, 1)
        new = posterior(parameters[moving] + step, moving)
        better = new[0] >= value[moving]
        improved = moving[better]
        parameters[improved] += step[better]
        for old, renewed in zip((value, score, information), new, strict=True):
            old[improved] = renewed[better]
        damping[moving] = np.clip(damping[moving] * np.where(better, 0.2, 5), 1e-6, 1e6)
        moving = moving[np.abs(step).max(1) > 1e-3]
        if not len(moving):
            break
    return parameters
