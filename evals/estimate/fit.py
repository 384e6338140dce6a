"""The first fall of accuracy with distance, fitted.

    A(m) = chance + (ceiling - chance) / (1 + exp(slope (log2 m - log2 L50)))

so L50 is where accuracy is half-way from chance to its ceiling, and L85 = L50 2^(-1.735 / slope)
where it is still 0.85 of the way. Where a small base turns full circle accuracy revives, so a fit
over all distances would misread it. The fit ends with the first two neighbouring cells that lie in
the lowest quarter between chance and ceiling or, where the hole is narrower than that, with its
lowest cell.
"""

import dataclasses

import numpy as np
from scipy import optimize, special

# Cells, half an octave of distance, are shown and decide where the fit ends; bins, an eighth of
# an octave, are fitted: half an octave would blur an edge that is sharper than that.
CELLS_PER_OCTAVE = 2
BINS_PER_CELL = 4

# The ceiling is read off distances up to 32 tokens, or two octaves where a task starts later,
# from as many cells (shortest first) as show it best and have enough trials together.
_SHORT_DISTANCE = 32
_SHORT_OCTAVES = 2
_CEILING_TRIALS = 30

# Accuracy below half-way that comes back above it, by at least this share of the way from chance
# to ceiling and in cells of at least so many trials, is a revival; less may be noise.
_REVIVAL_RISE = 1 / 3
_REVIVAL_TRIALS = 30

# 0.85 of the way from chance to ceiling lies this many units of the logistic before its middle.
_L85_LOGITS = float(special.logit(0.85))


def bin_number(distance: np.ndarray) -> np.ndarray:
    """int `[...]`, the bin of each distance in tokens; cells are `bin // BINS_PER_CELL`."""
    log_distance = np.log2(np.maximum(distance, 1))
    # The epsilon keeps powers of two, the first distance of a cell, in their cell.
    return np.floor(log_distance * CELLS_PER_OCTAVE * BINS_PER_CELL + 1e-9).astype(int)


def cell_start(number: int) -> int:
    """First distance in tokens of a half-octave cell: 1, 2, 2, 3, 4, 6, 8, 12, 16, 23, 32, ..."""
    return int(np.ceil(2 ** (number / CELLS_PER_OCTAVE)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Fits of Z resamples, each field `[Z]`.

    Attributes:
      log_l50, log_l85: log2 of a distance in tokens, which may lie beyond those measured.
      ceiling: of the fitted curve.
      observed_ceiling: of the shortest cells.
      last_cell: the last one fitted.
    """

    log_l50: np.ndarray
    log_l85: np.ndarray
    ceiling: np.ndarray
    observed_ceiling: np.ndarray
    last_cell: np.ndarray


def first_fall(
    trials: np.ndarray, hits: np.ndarray, x: np.ndarray, in_cell: np.ndarray, chance: float
) -> Fit:
    """Fits the first fall of accuracy in each resample.

    Args:
      trials, hits: `[Z, bins]`; row 0 is the data.
      x: `[bins]`, log2 distance.
      in_cell: `[bins, cells]`, 1 where the bin belongs to the cell.
      chance: accuracy of a guess.
    """
    cell_trials, cell_hits = trials @ in_cell, hits @ in_cell
    cell_x = x @ in_cell / in_cell.sum(0)
    accuracy = cell_hits / np.maximum(cell_trials, 1)
    filled = cell_trials > 0

    # The shortest cells together, as many of them as show the ceiling best.
    short = cell_x <= max(np.log2(_SHORT_DISTANCE), cell_x[0] + _SHORT_OCTAVES)
    summed = np.cumsum(cell_trials[:, short], 1)
    together = np.cumsum(cell_hits[:, short], 1) / np.maximum(summed, 1)
    enough = summed >= np.minimum(_CEILING_TRIALS, summed[:, -1:])
    observed = np.where(enough, together, 0).max(1)

    # The first two neighbouring cells in the lowest quarter end the fit.
    quarter, half = (chance + share * (observed - chance)[:, None] for share in (0.25, 0.5))
    below = filled & (accuracy < quarter)
    hole = below & np.pad(below[:, 1:], ((0, 0), (0, 1)))
    last_cell = np.where(hole.any(1), hole.argmax(1) + 1, len(cell_x) - 1)
    # Read off the data, for all resamples: few questions drawn twice look like a revival too.
    way = (accuracy[0] - chance) / max(observed[0] - chance, 1e-9)
    last_cell = np.minimum(last_cell, _lowest_before_revival(way, cell_trials[0]))
    fitted = np.arange(len(cell_x)) <= last_cell[:, None]
    fitted_bins = fitted @ in_cell.T

    fallen = filled & fitted & (accuracy < half)
    start = np.where(fallen.any(1), cell_x[fallen.argmax(1)] - 0.25, x[-1] + 0.5)
    log_l50, slope, ceiling = _logistic(
        trials * fitted_bins, hits * fitted_bins, x, chance, observed, start
    )
    return Fit(
        log_l50=log_l50,
        log_l85=log_l50 - _L85_LOGITS / slope,
        ceiling=ceiling,
        observed_ceiling=observed,
        last_cell=last_cell,
    )


def _lowest_before_revival(way: np.ndarray, trials: np.ndarray) -> int:
    """The lowest cell between the first below half-way and one well above it; else the last cell.

    Args:
      way: `[cells]`, share of the way from chance to ceiling.
      trials: `[cells]`.
    """
    (sure,) = np.nonzero(trials >= _REVIVAL_TRIALS)
    lowest = None
    for cell in sure:
        if lowest is None:
            lowest = cell if way[cell] < 0.5 else None
        elif way[cell] >= max(0.5, way[lowest] + _REVIVAL_RISE):
            return int(lowest)
        elif way[cell] < way[lowest]:
            lowest = cell
    return len(way) - 1


def isotonic_crossing(
    trials: np.ndarray, hits: np.ndarray, x: np.ndarray, threshold: float
) -> float:
    """Where the best curve that never rises crosses `threshold`: a check with no shape assumed.

    Pool adjacent violators, then a straight line between neighbouring bins.

    Args:
      trials, hits, x: `[bins]`, of the fitted range only: a revival would be pooled with the fall.
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
