"""What rows of text say: pure functions of columns of `evals.rows`, one evaluation at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from evals.rows import Rows


class MeanWithError(NamedTuple):
    """A mean, its standard error and how many independent units that was taken from."""

    mean: float
    standard_error: float
    num_units: int


class Interval(NamedTuple):
    """A mean and its 95% interval."""

    mean: float
    low: float
    high: float


def over_seeds(values: np.ndarray, *, ratios: bool = False) -> Interval:
    """Mean of one number a seed, and Student's t interval with one degree of freedom less.

    What seeds differ in (initialisation, rows) is in it; that all were asked the same documents is
    not. Of one seed the interval is NaN.

    Args:
      values: `[seeds]`.
      ratios: whether logarithms are averaged: the mean is geometric, the interval a factor.
    """
    values = np.log(values) if ratios else values
    mean, low, high = values.mean(), np.nan, np.nan
    if len(values) > 1:
        half = special.stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
        low, high = mean - half, mean + half
    ends = np.exp([mean, low, high]) if ratios else (mean, low, high)
    return Interval(*map(float, ends))


def total_nats(rows: Rows) -> float:
    """Nats of all tokens of all answers."""
    return float(np.sum(rows["nll"] * rows["num_tokens"]))


def mean_nll(rows: Rows) -> float:
    """Nats per token: every token counts the same, however answers were cut."""
    return total_nats(rows) / float(rows["num_tokens"].sum())


def perplexity(rows: Rows) -> float:
    """exp of nats per token."""
    return float(np.exp(mean_nll(rows)))


def bits_per_byte(rows: Rows) -> float:
    """Of the text's UTF-8 bytes: comparable between tokenizers."""
    return total_nats(rows) / float(np.log(2)) / float(rows["num_bytes"].sum())


def nats_per_word(rows: Rows) -> float:
    """Of the text's words, as whitespace separates them: comparable between tokenizers."""
    return total_nats(rows) / float(rows["num_words"].sum())


def word_perplexity(rows: Rows) -> float:
    """exp(total nats / words), what the authors of PG-19 ask for (Rae et al., arXiv 1911.05507)."""
    return float(np.exp(nats_per_word(rows)))


def likelihoods(rows: Rows) -> dict[str, float]:
    """By every measure that the rows allow, with its name in results.csv."""
    found = {"nll": mean_nll(rows), "perplexity": perplexity(rows)}
    if rows["num_bytes"].any():
        found["bits_per_byte"] = bits_per_byte(rows)
    if rows["num_words"].any():
        found["word_perplexity"] = word_perplexity(rows)
    return found


def share(rows: Rows, *, column: str = "first_token_correct") -> MeanWithError:
    """Mean of a column over answers, its error over documents.

    Answers of one document rise and fall together, so a binomial error would be too small.
    """
    return _ratio(rows[column], np.ones(len(rows["document"])), _units(rows, ("document",)))


def difference(
    rows: Rows, other: Rows, *, column: str = "nll", unit: tuple[str, ...] = ("document",)
) -> MeanWithError:
    """Mean of `rows` minus `other` over the same answers, e.g. of two variants.

    Paired: what makes a text hard is in both and cancels, so that the error is that of the
    difference, far below that of either mean. Nats are weighted by tokens.

    Args:
      column: "nll", or a column of right and wrong.
      unit: what counts as one independent draw: the columns that name it.

    Raises:
      ValueError: if the two are not about the same answers.
    """
    # Other texts may be cut alike, but not into answers of as many bytes.
    keys = ("document", "query", "num_tokens", "num_bytes")
    by_answer = [np.lexsort([each["query"], each["document"]]) for each in (rows, other)]
    mine, theirs = (
        {name: each[name][places] for name in {*keys, *unit, column}}
        for each, places in zip((rows, other), by_answer, strict=True)
    )
    if any(not np.array_equal(mine[name], theirs[name]) for name in keys):
        raise ValueError(
            "rows to be compared must be about the same answers; evaluate both with the same "
            "task, length and number of documents"
        )
    weights = mine["num_tokens"] if column == "nll" else np.ones(len(mine[column]))
    change = mine[column].astype(float) - theirs[column].astype(float)
    return _ratio(change, weights.astype(float), _units(mine, unit))


def above_best(found: Sequence[Rows]) -> list[MeanWithError]:
    """Nats per token of each above those of the one with the fewest, paired by document.

    NaN where the answers are not the same.
    """
    best = min(found, key=mean_nll)
    above = []
    for rows in found:
        try:
            above.append(difference(rows, best))
        except ValueError:
            above.append(MeanWithError(np.nan, np.nan, 0))
    return above


def _units(rows: Rows, names: tuple[str, ...]) -> np.ndarray:
    values = np.stack([rows[name] for name in names])
    return np.unique(values, axis=1, return_inverse=True)[1].reshape(-1)


def _ratio(values: np.ndarray, weights: np.ndarray, unit: np.ndarray) -> MeanWithError:
    """Weighted mean, with the ratio estimator's error over units of unequal weight."""
    weight = np.bincount(unit, weights)
    total = np.bincount(unit, weights * values)
    mean, n = total.sum() / weight.sum(), len(weight)
    error = np.nan
    if n > 1:
        spread = np.sum((total - mean * weight) ** 2)
        error = np.sqrt(n / (n - 1) * spread) / weight.sum()
    return MeanWithError(float(mean), float(error), n)
