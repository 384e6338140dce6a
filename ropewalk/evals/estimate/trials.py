"""Questions and right answers, counted by fine bins of distance."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ropewalk.evals.estimate import statistics
from ropewalk.evals.estimate.bins import fine_bin_number, fine_bin_start, group_bins, widths
from ropewalk.evals.rows import Rows


@dataclasses.dataclass(frozen=True)
class Trials:
    """Numbers of questions and of right answers at each distance.

    Attributes:
      questions, right: float `[..., bins]`, numbers of questions and of exact matches, and
        `[seeds, documents, fine bins]` at first. Bins without questions are left out.
      x: `[bins]`, log2 of each bin's distance.
      low, high: int `[bins]`, first and last distance of each bin, tokens.
      chance: accuracy of a guess.
      seeds: int, numbers of the seeds along the first axis of `questions`, while it has one.
      fine_correlation: `correlation` of the bins that were joined; None: these are fine bins.
    """

    questions: np.ndarray
    right: np.ndarray
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chance: float
    seeds: np.ndarray
    fine_correlation: float | None = None

    @property
    def correlation(self) -> float:
        """Correlation of answers within a document of `[documents, bins]`, by fine bins if known.

        Documents on both sides of a fall, in one wide bin, would look correlated.
        """
        if self.fine_correlation is None:
            return statistics.correlation(self.questions, self.right)
        return self.fine_correlation

    @classmethod
    def from_rows(cls, rows: Rows) -> "Trials":
        """Count rows of one task and length: `[seeds, documents, fine bins]`."""
        distance = rows["distance"]
        counts = {
            "seed": rows["seed"],
            "document": rows["document"],
            "bin": fine_bin_number(distance),
            "questions": np.ones(len(distance)),
            "right": rows["exact_match"],
        }
        ends = int(distance.min()), int(distance.max())
        return cls.from_counts(counts, distances=ends, chance=float(rows["chance"][0]))

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, np.ndarray], *, distances: tuple[int, int], chance: float
    ) -> "Trials":
        """Build from counts: `[seeds, documents, fine bins]`.

        Args:
          counts: equally long columns "seed", "document", "bin" (`bins.fine_bin_number`),
            "questions" and "right". Lines with equal seed, document and bin add up.
          distances: the shortest and the longest distance of any question, tokens; 0 counts as 1.
          chance: accuracy of a guess.
        """
        names = ("seed", "document", "bin")
        unique = [np.unique(counts[name], return_inverse=True) for name in names]
        (seeds, documents, fine), index = zip(*unique, strict=True)
        shape = len(seeds), len(documents), len(fine)
        flat_index, size = np.ravel_multi_index(index, shape), int(np.prod(shape))
        questions, right = (
            np.bincount(flat_index, counts[name], minlength=size).reshape(shape)
            for name in ("questions", "right")
        )
        # The outermost bins end at the shortest and longest distance of any question.
        shortest, longest = np.maximum(distances, 1)
        low = np.maximum(fine_bin_start(fine), shortest)
        high = np.minimum(fine_bin_start(fine + 1) - 1, longest)
        x = np.log2(low * high) / 2
        return cls(questions, right, x, low, high, chance, seeds)

    def of_seed(self, number: int) -> tuple["Trials", np.ndarray]:
        """Return the counts of one seed, and which documents it answered, bool `[documents]`.

        The result is `[documents, fine bins]`, without documents and bins that the seed lacks.
        """
        questions = self.questions[number]
        documents, bins = questions.any(1), questions.any(0)
        return self._map(lambda n: n[number][documents])._of_bins(bins), documents  # noqa: SLF001

    def of_seeds(self, chosen: np.ndarray) -> "Trials":
        """Return the seeds for which bool `[seeds]` is true."""
        return dataclasses.replace(self._map(lambda n: n[chosen]), seeds=self.seeds[chosen])

    def summed(self) -> "Trials":
        """Sum over the first axis: seeds, or documents."""
        return self._map(lambda n: n.sum(0))

    def weighted(self, weights: np.ndarray) -> "Trials":
        """Sum `[documents, bins]` over documents with weights `[Z, documents]`: `[Z, bins]`."""
        return self._map(lambda n: weights @ n)

    def joined(self, group: np.ndarray) -> "Trials":
        """Join neighboring bins with equal group numbers, int `[bins]`, ascending."""
        _, first, index = np.unique(group, return_index=True, return_inverse=True)
        total = self.questions.reshape(-1, len(index)).sum(0)
        last = np.append(first[1:], len(index)) - 1
        joined = self._map(lambda n: np.add.reduceat(n, first, axis=-1))
        x = np.bincount(index, total * self.x) / np.bincount(index, total)
        correlation = self.correlation if self.questions.ndim == 2 else None
        ends = {"low": self.low[first], "high": self.high[last]}
        return dataclasses.replace(joined, x=x, **ends, fine_correlation=correlation)

    def with_min_trials(self, minimum: int) -> "Trials":
        """Join bins of `[..., documents, bins]` until each seed has a minimum of trials."""
        counts = self.questions.sum(-2)
        return self.joined(group_bins(counts.reshape(-1, counts.shape[-1]).min(0), minimum))

    def since(self, distance: int) -> "Trials":
        """Return the bins from that of `distance` on."""
        return self._of_bins(slice(int(np.searchsorted(self.high, distance)), None))

    def _of_bins(self, chosen: np.ndarray | slice) -> "Trials":
        """Return some of the bins."""
        bins = {name: getattr(self, name)[chosen] for name in ("x", "low", "high")}
        return dataclasses.replace(self._map(lambda n: n[..., chosen]), **bins)

    def widths(self) -> np.ndarray:
        """Return the number of distances that each fine bin stands for, int `[bins]`."""
        return widths(fine_bin_number(self.low), int(self.low[0]), int(self.high[-1]))

    def mean_accuracy(self) -> np.ndarray:
        """Return the mean accuracy over distances, `[...]`, with equal weight for each distance.

        Bins must be fine bins. A bin without questions in a resample is left out of its mean, which
        is NaN without any questions.
        """
        weight = self.widths() * (self.questions > 0)
        accuracy = self.right / np.where(self.questions > 0, self.questions, 1)
        total = weight.sum(-1)
        return (accuracy * weight).sum(-1) / np.where(total > 0, total, np.nan)

    def _map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Trials":
        return dataclasses.replace(
            self, questions=function(self.questions), right=function(self.right)
        )
