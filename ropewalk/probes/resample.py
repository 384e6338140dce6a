"""Means over documents with intervals, by resampling documents."""

from typing import Literal

import numpy as np

_NUM_RESAMPLES = 400


def bootstrap_counts(num_documents: int) -> np.ndarray:
    """Return how often each document counts in each of C samples, `[C, B]`; always the same.

    The first sample is the original, in which each document counts once.
    """
    chances = [1 / num_documents] * num_documents
    drawn_CB = np.random.default_rng(0).multinomial(num_documents, chances, _NUM_RESAMPLES)
    return np.concatenate([np.ones((1, num_documents)), drawn_CB])


def with_interval(x_CX: np.ndarray, method: Literal["linear", "nearest"] = "linear") -> np.ndarray:
    """Return `[3, ...]`: the value of the original sample, and its 95% interval over resamples.

    The interval contains the value, which resamples may miss where it is a maximum or a first zero.
    "nearest" has no interpolation, which is undefined between a number and inf.
    """
    value_X, (low_X, high_X) = x_CX[0], np.percentile(x_CX[1:], (2.5, 97.5), axis=0, method=method)
    ends = np.where(value_X < low_X, value_X, low_X), np.where(value_X > high_X, value_X, high_X)
    return np.stack([value_X, *ends])


def bootstrap_mean(sum_BX: np.ndarray, count_BX: np.ndarray | None = None) -> np.ndarray:
    """Return the mean of all documents' items, and its 95% interval over documents.

    Args:
      sum_BX: sum of each document's items, `[B, ...]`.
      count_BX: number of these items, of the same shape or `[B]`; None: one each.

    Returns:
      `[3, ...]`: the mean and the two ends of its interval. NaN if there are no items, or if a
      resample has none.
    """
    weights_CB = bootstrap_counts(len(sum_BX))
    count_BX = np.ones(len(sum_BX)) if count_BX is None else count_BX
    sum_CX, count_CX = (np.tensordot(weights_CB, x_BX, 1) for x_BX in (sum_BX, count_BX))
    with np.errstate(invalid="ignore"):
        mean_CX = (sum_CX.T / count_CX.T).T  # transposed: `[B]` is broadcast from the front
    return with_interval(mean_CX)
