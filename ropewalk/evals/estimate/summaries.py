"""Likelihoods, shares and paired differences: pure functions of columns of `evals.rows`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ropewalk import evals
from ropewalk.evals.estimate.statistics import (
    MeanWithError,
    clustered_mean,
    limits,
    quantile,
    t_half_width,
    t_quantile,
)
from ropewalk.evals.estimate.trials import Trials
from ropewalk.evals.rows import Rows


class Interval(NamedTuple):
    """A mean and its 95% interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def around(cls, mean: float, half: float) -> "Interval":
        """Return the interval of a mean and half of its width."""
        return cls(float(mean), float(mean - half), float(mean + half))


def over_seeds(values: np.ndarray, *, ratios: bool = False) -> Interval:
    """Return the mean over seeds and Student's t interval with seeds - 1 degrees of freedom.

    The interval covers what differs between seeds (initialization, rows of training), but not the
    choice of documents, which all seeds share. It is NaN for one seed.

    Args:
      values: `[seeds]`.
      ratios: whether to average logarithms: the mean is geometric, the interval a factor.
    """
    values = np.log(values) if ratios else values
    half = t_half_width(values) if len(values) > 1 else np.nan
    interval = Interval.around(values.mean(), half)
    return Interval(*np.exp(interval).tolist()) if ratios else interval


def total_nats(rows: Rows) -> float:
    """Return the sum of nats over all tokens of all answers."""
    return float(np.sum(rows["nll"] * rows["num_tokens"]))


def mean_nll(rows: Rows) -> float:
    """Return nats per token; every token has equal weight, whatever the answers' sizes."""
    return total_nats(rows) / float(rows["num_tokens"].sum())


@np.errstate(over="ignore")  # infinite: a model that is wrong everywhere
def perplexity(rows: Rows) -> float:
    """Return the exponential of nats per token."""
    return float(np.exp(mean_nll(rows)))


@np.errstate(over="ignore")  # infinite: a model that is wrong everywhere
def likelihoods(rows: Rows) -> dict[str, float]:
    """Return every likelihood measure that the rows allow, by its name in results.csv.

    Bits per UTF-8 byte and perplexity per whitespace-separated word (of PG-19, Rae et al.,
    arXiv 1911.05507) are comparable between tokenizers. Without the latter if tokens have less than
    two bytes on average: errors of byte-like tokens multiply over a word, so its numbers have eight
    digits and compare nothing.
    """
    values = {"nll": mean_nll(rows), "perplexity": perplexity(rows)}
    nats, num_bytes, num_words = total_nats(rows), rows["num_bytes"].sum(), rows["num_words"].sum()
    if num_bytes:
        values["bits_per_byte"] = nats / float(np.log(2)) / float(num_bytes)
    if num_words and num_bytes >= 2 * rows["num_tokens"].sum():
        values["word_perplexity"] = float(np.exp(nats / float(num_words)))
    return values


def mean_accuracy(rows: Rows) -> float:
    """Return the share of exact matches of one task and length, for retrieval over distances.

    Half of the questions are at log-uniform distances, so each fine bin is weighted by its width in
    tokens instead of its number of questions.
    """
    if evals.parse(str(rows["task"][0])).kind != "retrieval":
        return float(rows["exact_match"].mean())
    return float(Trials.from_rows(rows).summed().summed().mean_accuracy())


def share(rows: Rows, *, column: str = "first_token_correct") -> Interval:
    """Return the mean of a boolean column over answers, and its 95% interval over documents.

    Wilson's interval with Student's quantile: ten answers that are all wrong do not mean 0% ± 0.
    Answers of one document are correlated, so a single document counts as one trial.
    """
    unit = _units(rows, ("document",))
    answers, right = (np.bincount(unit, x)[:, None] for x in (np.ones(len(unit)), rows[column]))
    if (n := len(answers)) == 1:
        answers, right = answers / answers, right / answers
    z = t_quantile(n) if n > 1 else quantile(0.025)
    return Interval(*(ends.item() for ends in limits(answers, right, z)))


def difference(
    rows: Rows, other: Rows, *, column: str = "nll", unit: tuple[str, ...] = ("document",)
) -> MeanWithError:
    """Return the mean of `rows` minus `other` over the same answers, such as of two variants.

    The difference is paired: the difficulty of a text cancels, so its standard error is far below
    the standard error of either mean. Nats are weighted by tokens.

    Args:
      column: "nll", or a boolean column.
      unit: columns that identify an independent unit.

    Raises:
      ValueError: if `rows` and `other` have different answers.
    """
    first, second = (_over_runs(part, column) for part in (rows, other))
    if any(not np.array_equal(first[name], second[name]) for name in _ANSWER):
        raise ValueError(
            "rows to compare have different answers; evaluate both with the same task, length and "
            "number of documents"
        )
    change = first | {column: first[column] - second[column]}
    return mean_with_error(change, column=column, unit=unit)


# Different texts may have answers of equal token counts, but not of equal byte counts.
_ANSWER = ("document", "query", "num_tokens", "num_bytes")


def _over_runs(rows: Rows, column: str) -> Rows:
    """Return one row for each answer, with the mean of a column over seeds."""
    keys, index = np.unique(np.stack([rows[name] for name in _ANSWER]), axis=1, return_inverse=True)
    mean = np.bincount(index.reshape(-1), rows[column]) / np.bincount(index.reshape(-1))
    return dict(zip(_ANSWER, keys, strict=True)) | {column: mean}


def mean_with_error(
    rows: Rows, *, column: str = "nll", unit: tuple[str, ...] = ("document",)
) -> MeanWithError:
    """Return the mean of a column over answers, and its error over units that seeds share.

    Nats are weighted by tokens. Arguments as of `difference`.
    """
    weights = rows["num_tokens"] if column == "nll" else np.ones(len(rows[column]))
    return clustered_mean(rows[column], weights.astype(float), _units(rows, unit))


def above_best(variants: Sequence[Rows]) -> list[MeanWithError]:
    """Return nats per token above the best variant's, for each variant, paired by document.

    The difference is NaN where the answers are not the same.
    """
    best = min(variants, key=lambda rows: np.nan_to_num(mean_nll(rows), nan=np.inf))
    differences = []
    for rows in variants:
        try:
            differences.append(difference(rows, best))
        except ValueError:
            differences.append(MeanWithError(np.nan, np.nan, 0))
    return differences


def _units(rows: Rows, names: tuple[str, ...]) -> np.ndarray:
    values = np.stack([rows[name] for name in names])
    return np.unique(values, axis=1, return_inverse=True)[1].reshape(-1)
