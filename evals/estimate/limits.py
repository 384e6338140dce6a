"""How surely an accuracy is known from answers that come clustered in documents."""

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
        """Whether each is surely below a level that is itself known only to z times `error`."""
        return level - self.accuracy > np.hypot(self.high - self.accuracy, z * error)

    def above(self, level: float, error: float, z: float) -> np.ndarray:
        """Whether each is surely above it."""
        return self.accuracy - level > np.hypot(self.accuracy - self.low, z * error)


class Runs(NamedTuple):
    """Runs of neighbouring bins, from `first` to `last`, each int `[runs]`."""

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def doubling(cls, num_bins: int) -> "Runs":
        """All runs of 1, 2, 4, ... bins: some run is about as long as any hole, or any shelf."""
        lengths = 2 ** np.arange(int(np.log2(num_bins)) + 1)
        starts = [np.arange(num_bins - length + 1) for length in lengths]
        first = np.concatenate(starts)
        return cls(first, first + np.repeat(lengths, [len(each) for each in starts]) - 1)


def quantile(share: float, num_tests: int = 1) -> float:
    """z that a normal variable passes, on one side, in `share` of all sets of so many tests.

    Bonferroni's bound, which holds however the tests depend on each other.
    """
    return float(-special.ndtri(share / num_tests))


def of_runs(trials: Trials, runs: Runs, z: float) -> Limits:
    """Accuracy within each run of bins; `trials` `[documents, bins]`."""
    asked, right = (
        np.pad(np.cumsum(counts, 1), ((0, 0), (1, 0))) for counts in (trials.asked, trials.right)
    )
    first, beyond = runs.first, runs.last + 1
    return limits(asked[:, beyond] - asked[:, first], right[:, beyond] - right[:, first], z)


def limits(asked: np.ndarray, right: np.ndarray, z: float) -> Limits:
    """Wilson's interval for as many independent trials as these are worth.

    Answers of one document succeed together. What that costs is the variance of a ratio over
    documents, over that of independent trials (the design effect of surveys), never taken as a
    gain; where all or none are right it says nothing, and the trials are taken as they are.

    Args:
      asked, right: `[documents, N]`.
      z: standard deviations that the interval reaches.
    """
    trials, num_documents = asked.sum(0), len(asked)
    accuracy = right.sum(0) / trials
    clustered = ((right - accuracy * asked) ** 2).sum(0) * num_documents / max(num_documents - 1, 1)
    independent = accuracy * (1 - accuracy) * trials
    some = independent > 0
    effect = np.maximum(np.where(some, clustered, 1) / np.where(some, independent, 1), 1)
    worth = trials / effect
    centre = (accuracy + z**2 / (2 * worth)) / (1 + z**2 / worth)
    half = np.sqrt(accuracy * (1 - accuracy) / worth + z**2 / (4 * worth**2))
    half *= z / (1 + z**2 / worth)
    return Limits(accuracy, np.maximum(centre - half, 0), np.minimum(centre + half, 1))
