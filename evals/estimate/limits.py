"""Confidence limits of accuracies whose answers are clustered in documents."""

from typing import NamedTuple

import numpy as np
from scipy import special

from evals.estimate.trials import Trials


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


def quantile(share: float, num_tests: int = 1) -> float:
    """Return the one-sided normal quantile for an error rate of `share` over all tests.

    This is Bonferroni's bound, which holds for any dependence between the tests.
    """
    return float(-special.ndtri(share / num_tests))


def limits_of_runs(trials: Trials, runs: Runs, z: float) -> Limits:
    """Return the accuracy within each run of bins of `trials`, `[documents, bins]`."""
    questions, right = (
        np.pad(np.cumsum(counts, 1), ((0, 0), (1, 0))) for counts in (trials.asked, trials.right)
    )
    first, beyond = runs.first, runs.last + 1
    return limits(questions[:, beyond] - questions[:, first], right[:, beyond] - right[:, first], z)


def limits(questions: np.ndarray, right: np.ndarray, z: float) -> Limits:
    """Return Wilson's interval for the effective number of independent trials.

    Answers of one document are correlated. The effective number is the number of trials divided by
    the design effect of surveys: the variance of the ratio over documents, divided by the variance
    of independent trials, at least 1. Where all answers are right, or all wrong, it is 1.

    Args:
      questions, right: `[documents, N]`.
      z: half-width of the interval, standard deviations.
    """
    trials, n = questions.sum(0), len(questions)
    accuracy = right.sum(0) / trials
    clustered = ((right - accuracy * questions) ** 2).sum(0) * n / max(n - 1, 1)
    independent = accuracy * (1 - accuracy) * trials
    some = independent > 0
    effect = np.maximum(np.where(some, clustered, 1) / np.where(some, independent, 1), 1)
    effective_trials = trials / effect
    centre = (accuracy + z**2 / (2 * effective_trials)) / (1 + z**2 / effective_trials)
    half = np.sqrt(accuracy * (1 - accuracy) / effective_trials + z**2 / (4 * effective_trials**2))
    half *= z / (1 + z**2 / effective_trials)
    return Limits(accuracy, np.maximum(centre - half, 0), np.minimum(centre + half, 1))
