"""Means, standard errors and 95% intervals, over seeds and over answers clustered in documents."""

from typing import Any, NamedTuple

import numpy as np
from scipy import special

# With fewer documents, their variance is unknown, and no interval means 95%.
MIN_DOCUMENTS = 8

# With fewer seeds, a t interval replaces the bootstrap.
_MIN_SEEDS_TO_RESAMPLE = 5


def t_quantile(num_units: Any, error_rate: float = 0.025) -> Any:
    """Return Student's one-sided quantile for a mean over units; NaN for one unit."""
    return special.stdtrit(np.asarray(num_units, float) - 1, 1 - error_rate)


class MeanWithError(NamedTuple):
    """A mean, its standard error and the number of independent units."""

    mean: float
    standard_error: float
    num_units: int

    @property
    def half_width(self) -> float:
        """Half of Student's 95% interval; NaN for one unit."""
        return float(t_quantile(self.num_units) * self.standard_error)


def clustered_mean(values: np.ndarray, weights: np.ndarray, unit: np.ndarray) -> MeanWithError:
    """Return the weighted mean, with the ratio estimator's error over independent units.

    Args:
      values, weights: `[answers]`.
      unit: int `[answers]`, number of the unit of each answer, from 0 on.
    """
    weight = np.bincount(unit, weights)
    total = np.bincount(unit, weights * values)
    mean, n = total.sum() / weight.sum(), len(weight)
    error = np.nan
    if n > 1:
        spread = np.sum((total - mean * weight) ** 2)
        error = np.sqrt(n / (n - 1) * spread) / weight.sum()
    return MeanWithError(float(mean), float(error), n)


def t_half_width(values: np.ndarray, shared: float = 0.0) -> float:
    """Return half of Student's 95% interval of the mean of `[units]` plus a shared variance."""
    return float(t_quantile(len(values)) * np.sqrt(values.var(ddof=1) / len(values) + shared))


def expanded(num_units: int) -> np.ndarray:
    """Return the two quantiles over resamples of `num_units` units for a 95% interval.

    A bootstrap over n units is too narrow by sqrt((n - 1) / n) and by the ratio of the normal to
    the t quantile. The quantiles correct both: the expanded percentile interval of Hesterberg,
    "What teachers should know about the bootstrap", 2015, section 5.2.
    """
    reach = t_quantile(num_units) * np.sqrt(num_units / (num_units - 1))
    return special.ndtr([-reach, reach])


def mean_over_seeds(
    values: np.ndarray, num_documents: int, random: np.random.Generator
) -> tuple[float, float, float]:
    """Return the mean over seeds and its 95% interval: Student's, plus the shared variance.

    All seeds are measured on the same documents. From five seeds on, seeds are resampled.

    Args:
      values: `[seeds, 1 + resamples]`, the data first; a resample has the same documents in all.
      num_documents: documents of each seed.
    """
    data, resampled = values[:, 0], values[:, 1:]
    num_seeds = len(data)
    # Rounding could move the mean of seeds that are all at a limit off the limit.
    center = float(np.clip(data.mean(), data.min(), data.max()))
    if num_seeds == 1:
        low, high = np.quantile(resampled[0], expanded(num_documents))
        return center, float(low), float(high)
    # The variance over seeds contains the noise of single seeds; add only the shared variance.
    shared = resampled.mean(0).var() - resampled.var(1).mean() / num_seeds
    shared = max(shared * num_seeds / (num_seeds - 1), 0)
    half = t_half_width(data, shared)
    if num_seeds < _MIN_SEEDS_TO_RESAMPLE:
        return center, center - float(half), center + float(half)
    seeds = random.integers(num_seeds, size=resampled.shape)
    means = np.take_along_axis(resampled, seeds, axis=0).mean(0)
    level = half / means.std() if means.std() else 0
    low, high = np.quantile(means, special.ndtr([-level, level]))
    return center, float(low), float(high)


def quantile(share: float, num_tests: int = 1) -> float:
    """Return the one-sided normal quantile for an error rate of `share` over all tests.

    This is Bonferroni's bound, which holds for any dependence between the tests.
    """
    return float(-special.ndtri(share / num_tests))


class Limits(NamedTuple):
    """Accuracies and the ends of their intervals, each float `[...]`."""

    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def below(self, level: float, error: float, z: float) -> np.ndarray:
        """Test whether accuracies are significantly below a level known to +- z `error`."""
        return level - self.accuracy > np.hypot(self.high - self.accuracy, z * error)

    def above(self, level: float, error: float, z: float) -> np.ndarray:
        """Test whether accuracies are significantly above a level known to +- z `error`."""
        return self.accuracy - level > np.hypot(self.accuracy - self.low, z * error)


def limits(questions: np.ndarray, right: np.ndarray, z: float, correlation: float = 0.0) -> Limits:
    """Return Wilson's interval for the effective number of independent trials.

    Args:
      questions, right: `[documents, N]`.
      z: half-width of the interval, standard deviations.
      correlation: least correlation of the answers of a document (`correlation`).
    """
    accuracy, effective_trials = _effective_trials(questions, right, correlation)
    return wilson(accuracy, effective_trials, z)


def exact_limits(
    questions: np.ndarray, right: np.ndarray, error_rate: float, correlation: float = 0.0
) -> Limits:
    """Return the interval of Clopper and Pearson for the effective number of independent trials.

    Wilson's is too narrow for small error rates near 0 and 1, such as those of many bins together.

    Args:
      questions, right: `[documents, N]`.
      error_rate: of each end.
      correlation: as of `limits`.
    """
    accuracy, n = _effective_trials(questions, right, correlation)
    low = special.betaincinv(accuracy * n, (1 - accuracy) * n + 1, error_rate)
    high = special.betaincinv(accuracy * n + 1, (1 - accuracy) * n, 1 - error_rate)
    return Limits(accuracy, np.where(accuracy > 0, low, 0), np.where(accuracy < 1, high, 1))


def wilson(accuracy: np.ndarray, trials: np.ndarray, z: float) -> Limits:
    """Return Wilson's interval, `z` standard deviations to each side, each float `[...]`."""
    center = (accuracy + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = np.sqrt(accuracy * (1 - accuracy) / trials + z**2 / (4 * trials**2))
    half *= z / (1 + z**2 / trials)
    return Limits(accuracy, np.maximum(center - half, 0), np.minimum(center + half, 1))


def _effective_trials(
    questions: np.ndarray, right: np.ndarray, correlation: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the accuracy and the effective number of independent trials, each `[N]`.

    Answers of one document are correlated. The effective number is the number of trials divided by
    the design effect of surveys: the variance of the ratio over documents, divided by the variance
    of independent trials, at least 1. Fewer than `MIN_DOCUMENTS` documents may be alike by luck, so
    it is then at least Kish's 1 + (m - 1) correlation; m is the mean over trials of the number of
    trials of their document.
    """
    trials = questions.sum(0)
    accuracy = right.sum(0) / trials
    clustered = ((right - accuracy * questions) ** 2).sum(0) * _unbiased(len(questions))
    independent = accuracy * (1 - accuracy) * trials
    some = independent > 0
    effect = np.where(some, clustered, 1) / np.where(some, independent, 1)
    has_few = np.count_nonzero(questions, axis=0) < MIN_DOCUMENTS
    least = 1 + ((questions**2).sum(0) / trials - 1) * correlation * has_few
    return accuracy, trials / np.maximum(effect, least)


def correlation(questions: np.ndarray, right: np.ndarray) -> float:
    """Return the correlation of answers within a document and column, 0 to 1; 0 if unknown.

    It is the excess of the variance over documents above that of independent trials, over all
    columns with several documents together.

    Args:
      questions, right: `[documents, N]`.
    """
    several = np.count_nonzero(questions, axis=0) > 1
    questions, right = questions[:, several], right[:, several]
    trials = questions.sum(0)
    accuracy = right.sum(0) / trials
    clustered = ((right - accuracy * questions) ** 2).sum(0)
    clustered *= _unbiased(np.count_nonzero(questions, axis=0))
    variance = accuracy * (1 - accuracy) * _unbiased(trials)
    pairs = (variance * ((questions**2).sum(0) - trials)).sum()
    excess = (clustered - variance * trials).sum()
    return float(np.clip(excess / pairs, 0, 1)) if pairs > 0 else 0.0


def _unbiased(number: Any) -> Any:
    """Return the factor that makes a variance over a number of units unbiased; 1 for one unit."""
    return number / np.maximum(number - 1, 1)
