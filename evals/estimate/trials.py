"""Questions and right answers, counted by fine bins of distance."""

import dataclasses
from collections.abc import Callable

import numpy as np

from evals.estimate.bins import FINE_PER_BIN, fine_bin_number
from evals.rows import Rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """How often was asked, and answered right, at each distance.

    Attributes:
      asked, right: float `[..., fine bins]`, numbers of questions and of exact matches. Only fine
        bins that have questions are there.
      x: `[fine bins]`, mean log2 distance of their questions.
      bins: int `[bins]`, the numbers of the bins (`evals.estimate.bins`) that have questions.
      in_bin: `[fine bins, bins]`, 1 where the fine bin belongs to the bin.
      chance: accuracy of a guess.
    """

    asked: np.ndarray
    right: np.ndarray
    x: np.ndarray
    bins: np.ndarray
    in_bin: np.ndarray
    chance: float

    @classmethod
    def of(cls, rows: Rows) -> "Trials":
        """Of rows of one task and length: `[seeds, documents, fine bins]`."""
        seeds, seed_index = np.unique(rows["seed"], return_inverse=True)
        documents, document_index = np.unique(rows["document"], return_inverse=True)
        fine, fine_index = np.unique(fine_bin_number(rows["distance"]), return_inverse=True)
        log_distance = np.log2(np.maximum(rows["distance"], 1))
        bins, bin_index = np.unique(fine // FINE_PER_BIN, return_inverse=True)
        shape = (len(seeds), len(documents), len(fine))
        place = np.ravel_multi_index((seed_index, document_index, fine_index), shape)
        size = int(np.prod(shape))
        return cls(
            asked=np.bincount(place, minlength=size).reshape(shape).astype(float),
            right=np.bincount(place, rows["exact_match"], minlength=size).reshape(shape),
            x=np.bincount(fine_index, log_distance) / np.bincount(fine_index),
            bins=bins,
            in_bin=np.equal.outer(bin_index, np.arange(len(bins))).astype(float),
            chance=float(rows["chance"][0]),
        )

    def by_seed(self) -> list["Trials"]:
        """One for each along the first axis."""
        return [self._each(lambda n, s=s: n[s]) for s in range(len(self.asked))]

    def summed(self) -> "Trials":
        """Over the first axis: all seeds, or all documents, together."""
        return self._each(lambda n: n.sum(0))

    def weighted(self, weights: np.ndarray) -> "Trials":
        """Sums over documents, `[documents, fine bins]`, by each of `[Z, documents]` weights."""
        return self._each(lambda n: weights @ n)

    def within(self, bins: np.ndarray) -> "Trials":
        """Those of the bins that are true in `[..., bins]`; no questions elsewhere."""
        fine = bins @ self.in_bin.T
        return self._each(lambda n: n * fine)

    def by_bin(self) -> tuple[np.ndarray, np.ndarray]:
        """Questions and right answers of bins, each `[..., bins]`."""
        return self.asked @ self.in_bin, self.right @ self.in_bin

    def _each(self, function: Callable[[np.ndarray], np.ndarray]) -> "Trials":
        return dataclasses.replace(self, asked=function(self.asked), right=function(self.right))
