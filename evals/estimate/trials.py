"""Questions and right answers, counted by fine bins of distance."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from evals.estimate.bins import fine_bin_number, fine_bin_start, widths
from evals.rows import Rows

# The columns of counts: they say all of the rows that the estimator reads.
COUNTS = ("seed", "document", "bin", "asked", "right")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """How often was asked, and answered right, at each distance.

    Attributes:
      asked, right: float `[..., bins]`, numbers of questions and of exact matches. Only bins that
        have questions are there.
      x: `[bins]`, log2 distance of each.
      low, high: int `[bins]`, first and last distance of each, tokens.
      chance: accuracy of a guess.
      seeds, documents: int, the numbers of those that the first two axes of `asked` are, as long
        as both are there.
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
        """Of rows of one task and length: `[seeds, documents, fine bins]`."""
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
        """Of counts, such as those of `counts`: `[seeds, documents, fine bins]`.

        Args:
          counts: columns of `COUNTS`, equally long; "bin" is a number of
            `evals.estimate.bins.fine_bin_number`. Lines of one seed, document and bin add up.
          distances: the shortest and the longest asked, tokens.
          chance: accuracy of a guess.

        Raises:
          ValueError: if a column is missing or there are no lines.
        """
        if missing := [name for name in COUNTS if name not in counts]:
            raise ValueError(f"counts need columns {', '.join(COUNTS)}; {missing[0]} is missing")
        if not len(counts["bin"]):
            raise ValueError("no counts to estimate from; evaluate first")
        names = ("seed", "document", "bin")
        found = [np.unique(counts[name], return_inverse=True) for name in names]
        (seeds, documents, fine), index = zip(*found, strict=True)
        shape = len(seeds), len(documents), len(fine)
        place, size = np.ravel_multi_index(index, shape), int(np.prod(shape))
        asked, right = (
            np.bincount(place, counts[name], minlength=size).reshape(shape)
            for name in ("asked", "right")
        )
        # The outermost bins reach no farther than was asked.
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
        """Columns of `COUNTS`, of seeds, documents and fine bins that have questions."""
        seed, document, fine = np.nonzero(self.asked)
        return {
            "seed": self.seeds[seed],
            "document": self.documents[document],
            "bin": fine_bin_number(self.low)[fine],
            "asked": self.asked[seed, document, fine].astype(int),
            "right": self.right[seed, document, fine].astype(int),
        }

    def by_seed(self) -> list["Trials"]:
        """One for each along the first axis."""
        return [self._each(lambda n, s=s: n[s]) for s in range(len(self.asked))]

    def summed(self) -> "Trials":
        """Over the first axis: all seeds, or all documents, together."""
        return self._each(lambda n: n.sum(0))

    def weighted(self, weights: np.ndarray) -> "Trials":
        """Sums over documents, `[documents, bins]`, by each of `[Z, documents]` weights."""
        return self._each(lambda n: weights @ n)

    def joined(self, group: np.ndarray) -> "Trials":
        """Neighbouring bins of equal numbers in int `[bins]`, ascending, made one."""
        _, first, index = np.unique(group, return_index=True, return_inverse=True)
        total = self.asked.reshape(-1, len(index)).sum(0)
        last = np.append(first[1:], len(index)) - 1
        joined = self._each(lambda n: np.add.reduceat(n, first, axis=-1))
        x = np.bincount(index, total * self.x) / np.bincount(index, total)
        return dataclasses.replace(joined, x=x, low=self.low[first], high=self.high[last])

    def of_at_least(self, least: int) -> "Trials":
        """Neighbouring bins joined until each has so many trials in every seed, all documents.

        `[seeds, documents, bins]`. Too few at the far end join the last that has enough.
        """
        asked = self.asked.sum(1).min(0)
        group, number, so_far = [], 0, 0.0
        for count in asked:
            if so_far >= least:
                number, so_far = number + 1, 0.0
            group.append(number)
            so_far += count
        if so_far < least and number:
            group = [min(each, number - 1) for each in group]
        return self.joined(np.array(group))

    def mean_accuracy(self) -> np.ndarray:
        """`[...]`, over distances, each counting the same, however often it was asked.

        Bins are fine ones. One of few questions may be in no document of a resample, and is left
        out of its mean.
        """
        width = widths(fine_bin_number(self.low), int(self.low[0]), int(self.high[-1]))
        weight = width * (self.asked > 0)
        accuracy = self.right / np.where(self.asked > 0, self.asked, 1)
        return (accuracy * weight).sum(-1) / weight.sum(-1)

    def _each(self, function: Callable[[np.ndarray], np.ndarray]) -> "Trials":
        return dataclasses.replace(self, asked=function(self.asked), right=function(self.right))
