"""Which quantity bounds the context? log2 L50 against log2 of each predictor, over bases.

    log2 L50 = intercept + slope log2 predictor + noise

Slope 1 and offset 0 for the theory length would confirm Men et al. (arXiv 2405.14591); the slopes
and offsets of the others, and above all the error at a base left out, show what does.

Ordinary least squares in logarithms. A base is one point, the mean of its seeds: bases differ from
the line by more than their seeds do. Where a seed sees farther (or less far) than could be asked,
its base has no such mean: it is counted and left out of the line, which therefore says nothing of
how far such bases see.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from evals.estimate.effective_context import MEASURED, Estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """The effective context of one run, and what its frequencies predict.

    Attributes:
      base: name of its base or variant; runs of one name are seeds of one point of the line.
      l50: tokens; NaN where it lies beyond the distances measured.
      predictors: lengths in tokens by name; None or inf where a predictor says nothing.
    """

    base: str
    l50: float
    predictors: Mapping[str, float | None]

    @classmethod
    def of(
        cls, estimate: Estimate, *, base: str, predictors: Mapping[str, float | None]
    ) -> "Point":
        """The point of an estimate of one run: `predictors` are `vars` of theory's predictions.

        Lengths measured by probes, an empirical zero say, are further entries of `predictors`.
        """
        l50 = estimate.l50 if estimate.verdict == MEASURED else float("nan")
        return cls(base=base, l50=l50, predictors=predictors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression:
    """A line through the bases; all intervals are 95%, t with `num_bases` - 2 freedom.

    Attributes:
      predictor: its name.
      slope, slope_low, slope_high: octaves of L50 for an octave of the predictor.
      intercept, intercept_low, intercept_high: log2 L50 where the predictor is 1 token: far from
        all points, and wide.
      offset, offset_low, offset_high: octaves of L50 above the predictor, for a slope of 1 (and
        one freedom more): 0 if it bounds the context, 1 if that is twice as long.
      error: root mean square over bases of what the line fitted without a base misses it by,
        octaves.
      as_is: root mean square over bases of log2 L50 less log2 of the predictor, with nothing
        fitted: octaves.
      num_bases: bases fitted.
      num_censored: bases left out because a seed lies beyond the distances measured.
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
    as_is: float
    num_bases: int
    num_censored: int


def compare(points: Sequence[Point]) -> list[Regression]:
    """One regression for each predictor, the one that errs least at a base left out first.

    All on the same points, those for which every predictor says something; a predictor that says
    nothing for any point (not measured) or the same for most is left out.

    Raises:
      ValueError: as `regress`, if that is so of all of them.
    """
    said = (name for point in points for name in point.predictors if _says(point, name))
    names = list(dict.fromkeys(said))
    common = [point for point in points if all(_says(point, name) for name in names)]
    found = []
    for name in names:
        try:
            found.append(regress(common, name))
        except ValueError:
            if not found and name == names[-1]:
                raise
    return sorted(found, key=lambda fitted: fitted.error)


def regress(points: Sequence[Point], predictor: str) -> Regression:
    """Regresses log2 L50 on log2 of one predictor, a point without it left out.

    Raises:
      ValueError: if fewer than three bases are measured, with different predictions.
    """
    points = [point for point in points if _says(point, predictor)]
    lengths = np.array([point.predictors[predictor] for point in points], float)
    _, first, base = np.unique(
        [point.base for point in points], return_index=True, return_inverse=True
    )
    # NaN for a base as soon as one seed is.
    y = np.bincount(base, np.log2([point.l50 for point in points])) / np.bincount(base)
    measured = ~np.isnan(y)
    x, y = np.log2(lengths[first])[measured], y[measured]
    if (differ := len(np.unique(x))) < 3:
        raise ValueError(
            f"a regression on {predictor} needs three bases that differ in it and whose effective "
            f"context was measured, got {differ}; evaluate more members"
        )
    n, centre = len(x), x.mean()
    spread = np.sum((x - centre) ** 2)
    slope = (x - centre) @ y / spread
    intercept = y.mean() - slope * centre
    residual = y - intercept - slope * x
    # A base pulls the line towards itself by its leverage: the line without it misses it by more.
    leverage = 1 / n + (x - centre) ** 2 / spread
    missed = residual / (1 - leverage)
    # 95% intervals reach so many standard deviations of a residual.
    reach = special.stdtrit(n - 2, 0.975) * np.sqrt(residual @ residual / (n - 2))
    offset = y - x
    half = special.stdtrit(n - 1, 0.975) * offset.std(ddof=1) / np.sqrt(n)
    return Regression(
        predictor=predictor,
        **_around("slope", slope, reach / np.sqrt(spread)),
        **_around("intercept", intercept, reach * np.sqrt(1 / n + centre**2 / spread)),
        **_around("offset", offset.mean(), half),
        error=float(np.sqrt(np.mean(missed**2))),
        as_is=float(np.sqrt(np.mean(offset**2))),
        num_bases=n,
        num_censored=int((~measured).sum()),
    )


def _around(name: str, value: float, half: float) -> dict[str, float]:
    """A field of `Regression` and the ends of its interval."""
    ends = {name: value, f"{name}_low": value - half, f"{name}_high": value + half}
    return {field: float(end) for field, end in ends.items()}


def _says(point: Point, predictor: str) -> bool:
    length = point.predictors.get(predictor)
    return length is not None and 0 < length < np.inf
