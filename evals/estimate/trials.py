"""Questions and right answers, counted by fine bins of distance."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from evals.estimate.bins import fine_bin_number, fine_bin_start, widths
from evals.rows import Rows

# Columns of counts: everything that the estimator reads of result rows.
COUNTS = ("seed", "document", "bin", "asked", "right")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """Numbers of questions and of right answers at each distance.

    Attributes:
      asked, right: float `[..., bins]`, numbers of questions and of exact matches. Bins without
        questions are left out.
      x: `[bins]`, log2 of each bin's distance.
      low, high: int `[bins]`, first and last distance of each bin, tokens.
      chance: accuracy of a guess.
      seeds, documents: int, numbers of the seeds and documents along the first two axes of
        `asked`; only valid while `asked` has both axes.
    """

    asked: np.ndarray
    right: np.ndarray
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chance: float
    seeds: np.ndarray = dataclasses.field(default_factory=lambda: np.arange(0))
    documents: np.ndarray = dataclasses.field(default_factory=lambda: np.arange(0))

    @classmethod
    def of(cls, rows: Rows) -> "Trials":
        """Count rows of one task and length: `[seeds, documents, fine bins]`."""
        distance = rows["distance"]
        counts = {
            "seed": rows["seed"],
            "document": rows["document"],
            "bin": fine_bin_number(distance),
            "asked": np.ones(len(distance)),
            "right": rows["exact_match"],
        }
        ends = int(distance.min()), int(distance.max())
        return cls.of_counts(counts, distances=ends, chance=float(rows["chance"][0]))

    @classmethod
    def of_counts(
        cls, counts: Mapping[str, np.ndarray], *, distances: tuple[int, int], chance: float
    ) -> "Trials":
        """Build from counts, such as those of `counts`: `[seeds, documents, fine bins]`.

        Args:
          counts: columns of `COUNTS`, equally long; "bin" is a number of
            `evals.estimate.bins.fine_bin_number`. Lines with equal seed, document and bin add up.
          distances: the shortest and the longest distance of any question, tokens.
          chance: accuracy of a guess.

        Raises:
          ValueError: if a column is missing or there are no lines.
        """
        if missing := [name for name in COUNTS if name not in counts]:
            raise ValueError(f"counts need columns {', '.join(COUNTS)}; {missing[0]} is missing")
        if not len(counts["bin"]):
            raise ValueError("no counts to estimate from; evaluate first")
        names = ("seed", "document", "bin")
        unique = [np.unique(counts[name], return_inverse=True) for name in names]
        (seeds, documents, fine), index = zip(*unique, strict=True)
        shape = len(seeds), len(documents), len(fine)
        flat_index, size = np.ravel_multi_index(index, shape), int(np.prod(shape))
        asked, right = (
            np.bincount(flat_index, counts[name], minlength=size).reshape(shape)
            for name in ("asked", "right")
        )
        # The outermost bins end at the shortest and longest distance of any question.
        shortest, longest = distances
        low = np.maximum(fine_bin_start(fine), shortest)
        high = np.minimum(fine_bin_start(fine + 1) - 1, longest)
        x = np.log2(np.maximum(low, 1) * np.maximum(high, 1)) / 2
        return cls(
            asked=asked,
            right=right,
            x=x,
            low=low,
            high=high,
            chance=chance,
            seeds=seeds,
            documents=documents,
        )

    def counts(self) -> dict[str, np.ndarray]:
        """Return the columns of `COUNTS` for all cells that have questions."""
        seed, document, fine = np.nonzero(self.asked)
        return {
            "seed": self.seeds[seed],
            "document": self.documents[document],
            "bin": fine_bin_number(self.low)[fine],
            "asked": self.asked[seed, document, fine].astype(int),
            "right": self.right[seed, document, fine].astype(int),
        }

    def by_seed(self) -> list["Trials"]:
        """Split along the first axis."""
        return [self._each(lambda n, s=s: n[s]) for s in range(len(self.asked))]

    def summed(self) -> "Trials":
        """Sum over the first axis: seeds, or documents."""
        return self._each(lambda n: n.sum(0))

    def weighted(self, weights: np.ndarray) -> "Trials":
        """Sum `[documents, bins]` over documents with weights `[Z, documents]`: `[Z, bins]`."""
        return self._each(lambda n: weights @ n)

    def joined(self, group: np.ndarray) -> "Trials":
        """Join neighboring bins with equal group numbers, int `[bins]`, ascending."""
        _, first, index = np.unique(group, return_index=True, return_inverse=True)
        total = self.asked.reshape(-1, len(index)).sum(0)
        last = np.append(first[1:], len(index)) - 1
        joined = self._each(lambda n: np.add.reduceat(n, first, axis=-1))
        x = np.bincount(index, total * self.x) / np.bincount(index, total)
        return dataclasses.replace(joined, x=x, low=self.low[first], high=self.high[last])

    def of_at_least(self, minimum: int) -> "Trials":
        """Join neighboring bins of `[seeds, documents, bins]` up to a minimum of trials per seed.

        Bins at the far end with too few trials join the last bin that has enough.
        """
        questions = self.asked.sum(1).min(0)
        group, number, so_far = [], 0, 0.0
        for count in questions:
            if so_far >= minimum:
                number, so_far = number + 1, 0.0
            group.append(number)
            so_far += count
        if so_far < minimum and number:
            group = [min(bin_group, number - 1) for bin_group in group]
        return self.joined(np.array(group))

    def mean_accuracy(self) -> np.ndarray:
        """Return the mean accuracy over distances, `[...]`, with equal weight for each distance.

        Bins must be fine bins. A bin without questions in a resample is left out of its mean.
        """
        width = widths(fine_bin_number(self.low), int(self.low[0]), int(self.high[-1]))
        weight = width * (self.asked > 0)
        accuracy = self.right / np.where(self.asked > 0, self.asked, 1)
        return (accuracy * weight).sum(-1) / weight.sum(-1)

    def _each(self, function: Callable[[np.ndarray], np.ndarray]) -> "Trials":
        return dataclasses.replace(self, asked=function(self.asked), right=function(self.right))
