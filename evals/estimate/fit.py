"""The first fall of accuracy with distance, fitted.

    A(m) = chance + (ceiling - chance) / (1 + exp(slope (log2 m - log2 L50)))

so L50 is where accuracy is half-way from chance to its ceiling, and L85 = L50 2^(-1.735 / slope)
where it is still 0.85 of the way. Where a small base turns full circle accuracy revives, so a fit
over all distances would misread it. The fit ends with the first two neighbouring bins that lie in
the lowest quarter between chance and ceiling or, where the dip is narrower than that, with its
lowest bin.
"""

import dataclasses

import numpy as np
from scipy import optimize, special

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
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


def first_fall(
    trials: np.ndarray, hits: np.ndarray, x: np.ndarray, in_bin: np.ndarray, chance: float
) -> Fit:
    """Fits the first fall of accuracy in each resample.

    Args:
      trials, hits: `[Z, fine bins]`; row 0 is the data.
      x: `[fine bins]`, log2 distance.
      in_bin: `[fine bins, bins]`, 1 where the fine bin belongs to the bin.
      chance: accuracy of a guess.
    """
    bin_trials, bin_hits = trials @ in_bin, hits @ in_bin
    bin_x = x @ in_bin / in_bin.sum(0)
    accuracy = bin_hits / np.maximum(bin_trials, 1)
    filled = bin_trials > 0

    # The shortest bins together, as many of them as show the ceiling best.
    short = bin_x <= max(np.log2(_SHORT_DISTANCE), bin_x[0] + _SHORT_OCTAVES)
    summed = np.cumsum(bin_trials[:, short], 1)
    together = np.cumsum(bin_hits[:, short], 1) / np.maximum(summed, 1)
    enough = summed >= np.minimum(_CEILING_TRIALS, summed[:, -1:])
    observed = np.where(enough, together, 0).max(1)

    # The first two neighbouring bins in the lowest quarter end the fit.
    quarter, half = (chance + share * (observed - chance)[:, None] for share in (0.25, 0.5))
    below = filled & (accuracy < quarter)
    dip = below & np.pad(below[:, 1:], ((0, 0), (0, 1)))
    last_bin = np.where(dip.any(1), dip.argmax(1) + 1, len(bin_x) - 1)
    # Read off the data, for all resamples: few questions drawn twice look like a revival too.
    way = (accuracy[0] - chance) / max(observed[0] - chance, 1e-9)
    last_bin = np.minimum(last_bin, _lowest_before_revival(way, bin_trials[0]))
    fitted = np.arange(len(bin_x)) <= last_bin[:, None]
    fitted_fine = fitted @ in_bin.T

    fallen = filled & fitted & (accuracy < half)
    start = np.where(fallen.any(1), bin_x[fallen.argmax(1)] - 0.25, x[-1] + 0.5)
    log_l50, slope, ceiling = _logistic(
        trials * fitted_fine, hits * fitted_fine, x, chance, observed, start
    )
    return Fit(
        log_l50=log_l50,
        log_l85=log_l50 - _L85_LOGITS / slope,
        ceiling=ceiling,
        observed_ceiling=observed,
        last_bin=last_bin,
    )


def _lowest_before_revival(way: np.ndarray, trials: np.ndarray) -> int:
    """The lowest bin between the first below half-way and one well above it; else the last bin.

    Args:
      way: `[bins]`, share of the way from chance to ceiling.
      trials: `[bins]`.
    """
    (sure,) = np.nonzero(trials >= _REVIVAL_TRIALS)
    lowest = None
    for number in sure:
        if lowest is None:
            lowest = number if way[number] < 0.5 else None
        elif way[number] >= max(0.5, way[lowest] + _REVIVAL_RISE):
            return int(lowest)
        elif way[number] < way[lowest]:
            lowest = number
    return len(way) - 1


def isotonic_crossing(
    trials: np.ndarray, hits: np.ndarray, x: np.ndarray, threshold: float
) -> float:
    """Where the best curve that never rises crosses `threshold`: a check with no shape assumed.

    Pool adjacent violators, then a straight line between neighbouring fine bins.

    Args:
      trials, hits, x: `[fine bins]`, of the fitted range only: a revival would be pooled with
        the fall.
      threshold: accuracy looked for.

    Returns:
      log2 of the distance in tokens; -inf (inf) if accuracy is below (above) at every distance.
    """
    seen = trials > 0
    trials, hits, x = trials[seen], hits[seen], x[seen]
    accuracy = optimize.isotonic_regression(hits / trials, weights=trials, increasing=False).x
    below = accuracy < threshold
    if not below.any():
        return np.inf
    after = int(below.argmax())
    if after == 0:
        return -np.inf
    around = [after, after - 1]
    return float(np.interp(threshold, accuracy[around], x[around]))


def _logistic(
    trials, hits, x, chance, observed, start
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Binomial likelihood of A(x), maximised for all resamples at once.

    Levenberg-Marquardt on the Fisher information. Parameters: the logit of the ceiling's share
    of the way from chance to 1, the log of the slope per octave, log2 L50. Weak normal priors
    (ceiling: as observed, one logit; slope: 4 an octave, a factor e; L50: where accuracy is first
    seen below half, 8 octaves) keep a perfect step, or a curve that never falls, finite.

    Returns:
      log2 L50, slope per octave and ceiling, each `[Z]`.
    """
    share = np.clip((observed - chance) / (1 - chance), 0.02, 0.99)
    prior = np.stack([special.logit(share), np.full_like(start, np.log(4)), start], 1)
    precision = np.array([1, 1, 8]) ** -2.0

    def evaluate(parameters, z):
        """Log posterior, its gradient and the information of the resamples `z`."""
        to_ceiling, log_slope, log_l50 = (column[:, None] for column in parameters.T)
        ceiling, slope = special.expit(to_ceiling), np.exp(log_slope)
        steepness = -slope * (x - log_l50)
        fall = special.expit(steepness)
        p = np.clip(chance + (1 - chance) * ceiling * fall, 1e-12, 1 - 1e-12)
        off_prior = parameters - prior[z]
        value = (hits[z] * np.log(p) + (trials[z] - hits[z]) * np.log1p(-p)).sum(1)
        value -= 0.5 * (precision * off_prior**2).sum(1)
        p_steepness = (1 - chance) * ceiling * fall * (1 - fall)
        p_to_ceiling = (1 - chance) * ceiling * (1 - ceiling) * fall
        gradient_p = np.stack([p_to_ceiling, p_steepness * steepness, p_steepness * slope], 1)
        weighted = gradient_p / (p * (1 - p))[:, None]
        score = (weighted @ (hits[z] - trials[z] * p)[:, :, None])[:, :, 0]
        information = (weighted * trials[z][:, None]) @ gradient_p.swapaxes(1, 2)
        return value, score - precision * off_prior, information + np.diag(precision)

    parameters = prior.copy()
    damping = np.full(len(start), 0.01)
    moving = np.arange(len(start))
    value, score, information = evaluate(parameters, moving)
    for _ in range(100):
        damped = information[moving] * (1 + damping[moving, None, None] * np.eye(3))
        step = np.clip(np.linalg.solve(damped, score[moving, :, None])[:, :, 0], -1, 1)
        new = evaluate(parameters[moving] + step, moving)
        better = new[0] >= value[moving]
        improved = moving[better]
        parameters[improved] += step[better]
        for old, renewed in zip((value, score, information), new, strict=True):
            old[improved] = renewed[better]
        damping[moving] = np.clip(damping[moving] * np.where(better, 0.2, 5), 1e-6, 1e6)
        moving = moving[np.abs(step).max(1) > 1e-3]
        if not len(moving):
            break
    ceiling = chance + (1 - chance) * special.expit(parameters[:, 0])
    return parameters[:, 2], np.exp(parameters[:, 1]), ceiling
