"""95% intervals over documents, by drawing documents with replacement."""

import numpy as np

_RESAMPLES = 400
INTERVAL = 2.5, 97.5  # percent


def resamples(num_documents: int) -> np.ndarray:
    """How often each of B documents is drawn, `[C, B]`; the same draws for all who ask."""
    random = np.random.default_rng(0)
    return random.multinomial(num_documents, [1 / num_documents] * num_documents, _RESAMPLES)


def over_documents(sum_BX: np.ndarray, count_B: np.ndarray) -> np.ndarray:
    """The mean of all documents' items, and its interval.

    Args:
      sum_BX: over each document's items, `[B, ...]`.
      count_B: how many items it has.

    Returns:
      `[3, ...]`: the mean, and the two ends of its interval. NaN where there are no items, or too
      few of them for every draw of documents to have one.
    """
    weights_CB = np.concatenate([np.ones((1, len(count_B))), resamples(len(count_B))])
    count_CX = (weights_CB @ count_B).reshape(-1, *[1] * (sum_BX.ndim - 1))
    with np.errstate(invalid="ignore"):
        mean_CX = np.tensordot(weights_CB, sum_BX, 1) / count_CX
    return np.stack([mean_CX[0], *np.percentile(mean_CX[1:], INTERVAL, axis=0)])
