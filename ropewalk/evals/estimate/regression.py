"""Regressions of log2 L50 on log2 of each predictor, over bases.

    log2 L50 = intercept + slope log2 predictor + noise

Slope 1 and intercept 0 for the theory length would confirm Men et al. (arXiv 2405.14591).
Predictors are compared by their slopes and, most of all, leave-one-base-out errors.

The fit is ordinary least squares in logarithms. A base is one point, the mean of its seeds, because
bases deviate from the line by more than seeds of one base differ. A base with a seed whose L50 lies
beyond the distances measured has no mean: it is counted as censored and left out of the fit, which
therefore does not describe such bases.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ropewalk.evals.estimate.statistics import t_quantile
from ropewalk.evals.estimate.summaries import Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """The effective context of one run and the lengths predicted from its frequencies or probes.

    Attributes:
      base: name of its base or variant; runs of one name are seeds of one point of the fit.
      l50: tokens; NaN where it lies beyond the distances measured.
      predictors: lengths in tokens by name; None or inf where a predictor has no value.
    """

    base: str
    l50: float
    predictors: Mapping[str, float | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression:
    """A line through the bases; all intervals are 95%, t with `num_bases` - 2 degrees of freedom.

    Attributes:
      predictor: its name.
      slope: octaves of L50 per octave of the predictor.
      intercept: log2 L50 where the predictor is 1 token.
      error: root mean square over bases of the leave-one-base-out error, octaves.
      as_is: root mean square over bases of log2 L50 - log2 predictor, without a fit, octaves.
      num_bases: bases in the fit.
      num_censored: bases left out because a seed's L50 lies beyond the distances measured.
    """

    predictor: str
    slope: Interval
    intercept: Interval
    error: float
    as_is: float
    num_bases: int
    num_censored: int


def compare(points: Sequence[Point]) -> list[Regression]:
    """Return one regression for each predictor, in ascending order of `Regression.error`.

    All regressions use the same points: those with a value for every predictor. A predictor
    without a value for any point, or with fewer than three different values, is left out.
    """
    predicted = (name for point in points for name in point.predictors if _predicts(point, name))
    names = dict.fromkeys(predicted)
    common = [point for point in points if all(_predicts(point, name) for name in names)]
    regressions = [line for name in names if (line := regress(common, name))]
    return sorted(regressions, key=lambda regression: regression.error)


def regress(points: Sequence[Point], predictor: str) -> Regression | None:
    """Regress log2 L50 on log2 of one predictor; points without a value are left out.

    None for fewer than three measured bases with different predictions.
    """
    points = [point for point in points if _predicts(point, predictor)]
    lengths = np.array([point.predictors[predictor] for point in points], float)
    _, first, base = np.unique(
        [point.base for point in points], return_index=True, return_inverse=True
    )
    # The mean of a base is NaN if one of its seeds is.
    y = np.bincount(base, np.log2([point.l50 for point in points])) / np.bincount(base)
    measured = ~np.isnan(y)
    x, y = np.log2(lengths[first])[measured], y[measured]
    if len(np.unique(x)) < 3:
        return None
    n, center = len(x), x.mean()
    spread = np.sum((x - center) ** 2)
    slope = (x - center) @ y / spread
    intercept = y.mean() - slope * center
    residual = y - intercept - slope * x
    # The leave-one-out residual is the residual divided by 1 - leverage.
    leverage = 1 / n + (x - center) ** 2 / spread
    left_out_error = residual / (1 - leverage)
    # Half-width of the 95% intervals for unit standard error.
    reach = t_quantile(n - 1) * np.sqrt(residual @ residual / (n - 2))
    return Regression(
        predictor=predictor,
        slope=Interval.around(slope, reach / np.sqrt(spread)),
        intercept=Interval.around(intercept, reach * np.sqrt(1 / n + center**2 / spread)),
        error=float(np.sqrt(np.mean(left_out_error**2))),
        as_is=float(np.sqrt(np.mean((y - x) ** 2))),
        num_bases=n,
        num_censored=int((~measured).sum()),
    )


def _predicts(point: Point, predictor: str) -> bool:
    length = point.predictors.get(predictor)
    return length is not None and 0 < length < np.inf
