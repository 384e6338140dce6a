"""Effective context: the distance at which a model stops finding what it needs.

Accuracy against distance m is fitted by a logistic curve in log2 m,

    A(m) = chance + (ceiling - chance) / (1 + exp(slope (log2 m - log2 L50))),

so L50 is where accuracy has fallen half-way from its ceiling to chance. Where a small base turns
full circle accuracy revives, so a fit over all distances (or a mean over depths) would misread
it: only the first fall counts, seen from the short side. The fit ends with the first two
neighbouring cells that lie in the lowest quarter between chance and ceiling; what revives beyond
is reported and never fitted.

A ceiling below chance + 0.5 is NOT_LEARNED: a model that cannot do the task next door has no
effective context, not a short one.
"""

import dataclasses
from typing import Any

import numpy as np
from scipy import special, stats

from evals.rows import Rows

NOT_LEARNED = "NOT_LEARNED"
MEASURED = "MEASURED"

# Cells, half an octave of distance, are shown and decide where the fit ends; bins, an eighth of
# an octave, are fitted: half an octave would blur an edge that is sharper than that.
CELLS_PER_OCTAVE = 2
_BINS_PER_CELL = 4

# The ceiling is read off distances up to 32 tokens, or two octaves where a task starts later,
# from as many cells (shortest first) as show it best and have enough trials together.
_SHORT_DISTANCE = 32
_SHORT_OCTAVES = 2
_CEILING_TRIALS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """Accuracy over half an octave of distances, all seeds together.

    Attributes:
      distance: geometric mean of the trials' distances, tokens.
      low, high: shortest and longest distance of the cell, tokens, both included.
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
      verdict: "MEASURED", "NOT_LEARNED" (by more than half of the seeds), "> {longest}" or
        "< {shortest}".
      cells: accuracy by distance.
      revival: highest accuracy of a cell beyond the fit, NaN if none is out of the lowest quarter.
      revival_distance: that cell's distance, tokens.
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
    l50: float
    ci_low: float
    ci_high: float
    verdict: str
    cells: tuple[Cell, ...]
    revival: float
    revival_distance: float
    shortest: int
    longest: int
    num_documents: int
    num_seeds: int
    num_learned: int

    def __str__(self):
        if self.verdict != MEASURED:
            return self.verdict
        low = f"< {self.shortest}" if self.ci_low == 0 else f"{self.ci_low:.3g}"
        high = f"> {self.longest}" if np.isinf(self.ci_high) else f"{self.ci_high:.3g}"
        return f"{self.l50:.3g} [{low}, {high}]"


def estimate(rows: Rows, *, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Effective context from the rows of one task, length and model setting.

    One seed: the interval is the bootstrap's over documents (2.5% and 97.5% quantiles).
    Several seeds: the seed is the unit. The variance of the mean of log2 L50 is that between
    seeds plus the bootstrap's over the documents they share; a t interval takes
    Welch-Satterthwaite's degrees of freedom with the documents' part as known (so S - 1 of them
    when seeds differ more than documents do). This counts the noise of a seed on a document
    twice, which errs on the wide side; a bootstrap over a handful of seeds errs on the narrow one.

    Args:
      rows: columns of `evals.rows`.
      resamples: bootstrap resamples.
      seed: of the bootstrap.

    Raises:
      ValueError: if rows are empty or mix tasks, lengths, schedules or checkpoints.
    """
    if not len(rows["task"]):
        raise ValueError("no rows to estimate from; evaluate first")
    names = ("task", "length", "trained_length", "rotary", "step", "chance")
    task, length, trained_length, _, _, chance = (_only(rows, name) for name in names)
    seeds, seed_index = np.unique(rows["seed"], return_inverse=True)
    documents, document_index = np.unique(rows["document"], return_inverse=True)
    shortest, longest = int(rows["distance"].min()), int(rows["distance"].max())

    log_distance = np.log2(np.maximum(rows["distance"], 1))
    # The epsilon keeps powers of two, the first distance of a cell, in their cell.
    bin_number = np.floor(log_distance * CELLS_PER_OCTAVE * _BINS_PER_CELL + 1e-9).astype(int)
    bins, bin_index = np.unique(bin_number, return_inverse=True)
    x = np.bincount(bin_index, log_distance) / np.bincount(bin_index)
    cells, cell_index = np.unique(bins // _BINS_PER_CELL, return_inverse=True)
    in_cell = np.equal.outer(cell_index, np.arange(len(cells))).astype(float)  # [bins, cells]

    shape = (len(seeds), len(documents), len(bins))
    place = np.ravel_multi_index((seed_index, document_index, bin_index), shape)
    size = int(np.prod(shape))
    trials = np.bincount(place, minlength=size).reshape(shape).astype(float)
    hits = np.bincount(place, rows["exact_match"], minlength=size).reshape(shape)

    # Resample 0 is the data itself. All seeds saw the same documents, so they share resamples.
    num_documents = len(documents)
    random = np.random.Generator(np.random.Philox(seed))
    drawn = random.multinomial(num_documents, np.full(num_documents, 1 / num_documents), resamples)
    weights = np.concatenate([np.ones((1, num_documents)), drawn])
    fits = [
        _fit(weights @ trials[s], weights @ hits[s], x, in_cell, chance) for s in range(len(seeds))
    ]

    learned = [fit for fit in fits if fit.observed_ceiling[0] >= chance + 0.5]
    shown = _cells(weights @ trials.sum(0), weights @ hits.sum(0), x, in_cell, cells)
    common: dict[str, Any] = {
        "task": str(task),
        "length": int(length),
        "trained_length": int(trained_length),
        "chance": float(chance),
        "cells": shown,
        "shortest": shortest,
        "longest": longest,
        "num_documents": num_documents,
        "num_seeds": len(seeds),
        "num_learned": len(learned),
    }
    nan = float("nan")
    if 2 * len(learned) < len(seeds) or not learned:
        return Estimate(
            ceiling=float(np.mean([fit.observed_ceiling[0] for fit in fits])),
            l50=nan,
            ci_low=nan,
            ci_high=nan,
            verdict=NOT_LEARNED,
            revival=nan,
            revival_distance=nan,
            **common,
        )

    ceiling = float(np.mean([fit.ceiling[0] for fit in learned]))
    low, high = np.log2(max(shortest, 1)), np.log2(longest)
    # Beyond the distances measured a fit is extrapolation: it only tells on which side.
    log_l50 = np.clip([fit.log_l50 for fit in learned], low, high)  # [seeds, 1 + resamples]
    centre = float(log_l50[:, 0].mean())
    ci_low, ci_high = _interval(log_l50)
    if num_documents == 1:
        ci_low, ci_high = -np.inf, np.inf
    verdict = MEASURED
    if centre >= high:
        verdict = f"> {longest}"
    elif centre <= low:
        verdict = f"< {shortest}"

    # A seed at the limit could be anywhere beyond it, and so could the mean.
    ci_low = 0.0 if ci_low <= low or (log_l50[:, 0] <= low).any() else 2.0**ci_low
    ci_high = np.inf if ci_high >= high or (log_l50[:, 0] >= high).any() else 2.0**ci_high
    last_fitted = max(int(fit.last_cell[0]) for fit in learned)
    quarter = chance + 0.25 * (ceiling - chance)
    revived = [cell for cell in shown[last_fitted + 1 :] if cell.ci_low > quarter]
    best = max(revived, key=lambda cell: cell.accuracy, default=None)
    return Estimate(
        ceiling=ceiling,
        l50=2.0**centre,
        ci_low=float(ci_low),
        ci_high=float(ci_high),
        verdict=verdict,
        revival=best.accuracy if best else nan,
        revival_distance=best.distance if best else nan,
        **common,
    )


def _only(rows: Rows, name: str) -> Any:
    values = np.unique(rows[name])
    if len(values) > 1:
        raise ValueError(f"an estimate needs rows of one {name}, got {', '.join(map(str, values))}")
    return values[0]


def _interval(log_l50: np.ndarray) -> tuple[float, float]:
    """95% interval of log2 L50 from `[seeds, 1 + resamples]`; see `estimate`."""
    num_seeds = len(log_l50)
    if num_seeds == 1:
        low, high = np.quantile(log_l50[0, 1:], [0.025, 0.975])
        return float(low), float(high)
    between = log_l50[:, 0].var(ddof=1) / num_seeds
    total = between + log_l50[:, 1:].mean(0).var()
    freedom = (num_seeds - 1) * (total / between) ** 2 if between else np.inf
    half = float(stats.t.ppf(0.975, freedom) * np.sqrt(total))
    centre = float(log_l50[:, 0].mean())
    return centre - half, centre + half


def _cells(trials, hits, x, in_cell, cells) -> tuple[Cell, ...]:
    """Accuracy by cell; row 0 of `trials` and `hits` is the data, the others its resamples."""
    log_distance = (trials[0] * x) @ in_cell / (trials[0] @ in_cell)
    trials, hits = trials @ in_cell, hits @ in_cell
    accuracy = hits / np.maximum(trials, 1)
    variance = accuracy[1:].var(0, where=trials[1:] > 0)
    n, p = trials[0], accuracy[0]
    # Questions of one document succeed together: the bootstrap says what that costs. Where all
    # or none succeed it says nothing, and the trials are taken as they are.
    independent = variance * n <= p * (1 - p)
    n = np.where(independent, n, p * (1 - p) / np.where(independent, 1, variance))
    z = stats.norm.ppf(0.975)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return tuple(
        Cell(
            distance=float(2 ** log_distance[i]),
            low=cell_start(number),
            high=cell_start(number + 1) - 1,
            trials=round(trials[0, i]),
            accuracy=float(p[i]),
            ci_low=float(max(centre[i] - half[i], 0)),
            ci_high=float(min(centre[i] + half[i], 1)),
        )
        for i, number in enumerate(cells)
    )


def cell_start(number: int) -> int:
    """First distance in tokens of a half-octave cell: 1, 2, 2, 3, 4, 6, 8, 12, 16, 23, 32, ..."""
    return int(np.ceil(2 ** (number / CELLS_PER_OCTAVE)))


@dataclasses.dataclass(frozen=True)
class _Fit:
    """Fits of Z resamples, each field `[Z]`."""

    log_l50: np.ndarray
    ceiling: np.ndarray
    observed_ceiling: np.ndarray
    last_cell: np.ndarray


def _fit(trials, hits, x, in_cell, chance) -> _Fit:
    """Fits the first fall of accuracy in each resample.

    Args:
      trials, hits: `[Z, bins]`.
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
    fitted = np.arange(len(cell_x)) <= last_cell[:, None]
    fitted_bins = fitted @ in_cell.T

    fallen = filled & fitted & (accuracy < half)
    start = np.where(fallen.any(1), cell_x[fallen.argmax(1)] - 0.25, x[-1] + 0.5)
    log_l50, ceiling = _logistic(
        trials * fitted_bins, hits * fitted_bins, x, chance, observed, start
    )
    return _Fit(log_l50, ceiling, observed, last_cell)


def _logistic(trials, hits, x, chance, observed, start) -> tuple[np.ndarray, np.ndarray]:
    """Binomial likelihood of A(x), maximised for all resamples at once.

    Levenberg-Marquardt on the Fisher information. Parameters: the logit of the ceiling's share
    of the way from chance to 1, the log of the slope per octave, log2 L50. Weak normal priors
    (ceiling: as observed, one logit; slope: 4 an octave, a factor e; L50: where accuracy is first
    seen below half, 8 octaves) keep a perfect step, or a curve that never falls, finite.

    Returns:
      log2 L50 and ceiling, each `[Z]`.
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
    return parameters[:, 2], ceiling
