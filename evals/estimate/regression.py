"""Which quantity bounds the context? log2 L50 against log2 of each predictor, over bases.

    log2 L50 = intercept + slope log2 predictor + (base) + (seed) + noise

Slope 1 and offset 0 for the theory length would confirm Men et al. (arXiv 2405.14591); the slopes
and offsets of the others, and above all the error at a base left out, show what does. Bases differ
from the line by more than their seeds do, and a seed may be good or bad at every base (its
initialisation, its order of data), so both are random effects where they can be told from noise.
A crossing that lies beyond the distances measured enters as what is known of it, one side of an
interval (Tobit, 1958); dropping it would flatten the line.

All effects are found by Newton's method, which the likelihood's concavity makes safe; the standard
deviations maximise the likelihood integrated over the effects by Laplace's method. Without
censoring that is exact, restricted maximum likelihood: for one seed, least squares.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import optimize, special, stats

from evals.estimate.effective_context import MEASURED, Estimate

# Standard deviations are sought between these, octaves: an exact line has none.
_SMALLEST, _LARGEST = 1e-3, 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """What is known of the effective context of one run, and what its frequencies predict.

    Attributes:
      base: name of its base or schedule; runs of one name are one draw for the intervals.
      seed: of the run.
      low, high: L50 lies between them, tokens: equal where it was measured, (longest, inf) or
        (0, shortest) where it lies beyond, (0, inf) where nothing was learned.
      predictors: lengths in tokens by name; None or inf where a predictor says nothing.
    """

    base: str
    seed: int
    low: float
    high: float
    predictors: Mapping[str, float | None]

    @classmethod
    def of(
        cls, estimate: Estimate, *, base: str, seed: int, predictors: Mapping[str, float | None]
    ) -> "Point":
        """The point of an estimate of one run: `predictors` are `vars` of theory's predictions.

        Lengths measured by probes, an empirical zero say, are further entries of `predictors`.
        """
        low, high = 0.0, float("inf")
        if estimate.verdict == MEASURED:
            low = high = estimate.l50
        elif estimate.verdict.startswith(">"):
            low = estimate.l50
        elif estimate.verdict.startswith("<"):
            high = estimate.l50
        return cls(base=base, seed=seed, low=low, high=high, predictors=predictors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression:
    """A line through the points; all intervals are 95%, t with (bases measured - 2) freedom.

    Attributes:
      predictor: its name.
      slope, slope_low, slope_high: octaves of L50 for an octave of the predictor.
      intercept, intercept_low, intercept_high: log2 L50 where the predictor is 1 token: far from
        all points, and wide.
      offset, offset_low, offset_high: octaves of L50 above the predictor, for a slope of 1 (and
        one freedom more): 0 if it bounds the context, 1 if that is twice as long.
      error: root mean square over bases of what the line fitted without a base misses it by,
        octaves; a censored point is missed by what the prediction falls short of its limit.
      num_points, num_censored: points used, and those of them that are not measured.
      num_bases: bases measured.
    """

    predictor: str
    slope: float
    slope_low: float
    slope_high: float
    intercept: float
    intercept_low: float
    intercept_high: float
    offset: float
    offset_low: float
    offset_high: float
    error: float
    num_points: int
    num_censored: int
    num_bases: int


def compare(points: Sequence[Point]) -> list[Regression]:
    """One regression for each predictor, the one that errs least at a base left out first.

    All on the same points, those for which every predictor says something; a predictor that says
    nothing for any point (not measured) is left out.

    Raises:
      ValueError: as `regress`.
    """
    names = {name: None for point in points for name in point.predictors}
    names = [name for name in names if any(_says(point, name) for point in points)]
    common = [point for point in points if all(_says(point, name) for name in names)]
    return sorted((regress(common, name) for name in names), key=lambda fitted: fitted.error)


def regress(points: Sequence[Point], predictor: str) -> Regression:
    """Regresses log2 L50 on log2 of one predictor.

    Points that say nothing (not learned, or without this predictor) are left out.

    Raises:
      ValueError: if fewer than three bases are measured, with different predictions.
    """
    points = [point for point in points if _says(point, predictor)]
    points = [point for point in points if point.low > 0 or point.high < np.inf]
    measured = np.array([point.low == point.high for point in points], bool)
    lengths = np.array([point.predictors[predictor] for point in points], float)
    bases = {point.base for point in points if point.low == point.high}
    differ = min(len(bases), len(np.unique(lengths[measured])))
    if differ < 3:
        raise ValueError(
            f"a regression on {predictor} needs three bases that differ in it and whose effective "
            f"context was measured, got {differ}; evaluate more members"
        )
    x = np.log2(lengths)
    y = np.log2([point.low if point.low > 0 else point.high for point in points])
    # 1: L50 lies above y, -1: below, 0: it is y.
    side = np.array([(point.high == np.inf) * 1 - (point.low == 0) * 1 for point in points])
    centre = x.mean()
    line = np.stack([np.ones_like(x), x - centre], 1)
    effects = _random_effects(points)

    deviations = _deviations(line, effects, y, side)
    found, covariance = _newton(line, effects, y, side, deviations)
    t = stats.t.ppf(0.975, len(bases) - 2)
    slope, slope_half = found[1], t * np.sqrt(covariance[1, 1])
    to_origin = np.array([1, -centre])
    intercept = to_origin @ found
    intercept_half = t * np.sqrt(to_origin @ covariance @ to_origin)

    deviations_1 = _deviations(line[:, :1], effects, y - x, side)
    (offset,), covariance = _newton(line[:, :1], effects, y - x, side, deviations_1)
    offset_half = stats.t.ppf(0.975, len(bases) - 1) * np.sqrt(covariance[0, 0])
    return Regression(
        predictor=predictor,
        slope=float(slope),
        slope_low=float(slope - slope_half),
        slope_high=float(slope + slope_half),
        intercept=float(intercept),
        intercept_low=float(intercept - intercept_half),
        intercept_high=float(intercept + intercept_half),
        offset=float(offset),
        offset_low=float(offset - offset_half),
        offset_high=float(offset + offset_half),
        error=_left_out_error(points, line, effects, y, side, deviations),
        num_points=len(points),
        num_censored=int((~measured).sum()),
        num_bases=len(bases),
    )


def _says(point: Point, predictor: str) -> bool:
    length = point.predictors.get(predictor)
    return length is not None and 0 < length < np.inf


def _random_effects(points: Sequence[Point]) -> list[np.ndarray]:
    """Indicators `[points, bases]` and `[points, seeds]`, where noise can be told from them."""
    effects = []
    for labels in ([point.base for point in points], [point.seed for point in points]):
        values, index = np.unique(labels, return_inverse=True)
        if 1 < len(values) < len(points):
            effects.append(np.eye(len(values))[index])
    return effects


def _deviations(line, effects, y, side) -> np.ndarray:
    """Standard deviations of the noise and of each effect, octaves."""

    def loss(log_deviations):
        return _newton_full(line, effects, y, side, np.exp(log_deviations))[2]

    start = np.full(1 + len(effects), np.log(0.3))
    bounds = [(np.log(_SMALLEST), np.log(_LARGEST))] * len(start)
    return np.exp(optimize.minimize(loss, start, method="L-BFGS-B", bounds=bounds).x)


def _newton(line, effects, y, side, deviations) -> tuple[np.ndarray, np.ndarray]:
    """The line's coefficients and their covariance, for known standard deviations."""
    found, information, _ = _newton_full(line, effects, y, side, deviations)
    num_fixed = line.shape[1]
    return found[:num_fixed], np.linalg.inv(information)[:num_fixed, :num_fixed]


def _newton_full(line, effects, y, side, deviations) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients of line and effects, their information, and minus the integrated likelihood.

    Effects are in units of their standard deviation, which may then be 0.
    """
    noise, *spread = deviations
    columns = [effect * deviation for effect, deviation in zip(effects, spread, strict=True)]
    design = np.concatenate([line, *columns], 1)
    prior = np.arange(design.shape[1]) >= line.shape[1]  # precision: none for the line

    def evaluate(coefficients):
        z = (design @ coefficients - y) / noise
        above = z * np.where(side, side, 1)  # into the side where L50 is
        mills = np.exp(stats.norm.logpdf(above) - special.log_ndtr(above))
        value = np.where(side, special.log_ndtr(above), stats.norm.logpdf(z) - np.log(noise)).sum()
        slope = np.where(side, side * mills, -z) / noise
        curvature = np.where(side, mills * (above + mills), 1) / noise**2
        value -= 0.5 * (prior * coefficients**2).sum()
        score = design.T @ slope - prior * coefficients
        return value, score, (design.T * curvature) @ design + np.diag(prior.astype(float))

    # From least squares as if nothing were censored.
    start, *_ = np.linalg.lstsq(line, y, rcond=None)
    coefficients = np.concatenate([start, np.zeros(design.shape[1] - line.shape[1])])
    value, score, information = evaluate(coefficients)
    for _ in range(100):
        step = np.linalg.solve(information, score)
        gain = score @ step
        if gain < 1e-12:
            break
        while (new := evaluate(coefficients + step))[0] < value and gain > 1e-12:
            step, gain = step / 2, gain / 2
        coefficients = coefficients + step
        value, score, information = new
    return coefficients, information, -value + 0.5 * np.linalg.slogdet(information)[1]


def _left_out_error(points, line, effects, y, side, deviations) -> float:
    """Standard deviations stay those of all points: two bases tell nothing of them."""
    bases = np.array([point.base for point in points])
    squares = []
    for base in np.unique(bases):
        out = bases == base
        kept = [effect[~out] for effect in effects]
        found, _ = _newton(line[~out], kept, y[~out], side[~out], deviations)
        short = y[out] - line[out] @ found
        # Of a censored point only what is missing on its side.
        missed = np.where(side[out], side[out] * np.maximum(side[out] * short, 0), short)
        squares.append((missed**2).mean())
    return float(np.sqrt(np.mean(squares)))
