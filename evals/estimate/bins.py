"""Bins of distance: half an octave each, and four fine bins within.

Accuracy is shown by bins. What is estimated reads fine bins, an eighth of an octave: half an octave
would blur an edge that is sharper than that, and hide a hole that is narrower.
"""

import numpy as np

BINS_PER_OCTAVE = 2
FINE_PER_BIN = 4


def fine_bin_number(distance: np.ndarray | int) -> np.ndarray:
    """int `[...]`, the fine bin of each distance in tokens."""
    log_distance = np.log2(np.maximum(distance, 1))
    # The epsilon keeps powers of two, the first distance of a bin, in their bin.
    return np.floor(log_distance * BINS_PER_OCTAVE * FINE_PER_BIN + 1e-9).astype(int)


def bin_number(distance: np.ndarray | int) -> np.ndarray:
    """int `[...]`, the bin of each distance in tokens."""
    return fine_bin_number(distance) // FINE_PER_BIN


def fine_bin_start(number: np.ndarray | int) -> np.ndarray:
    """int `[...]`, the first distance of each fine bin, tokens: 1 of 0, 2 of 8, 28 of 38, ..."""
    start = 2 ** (np.asarray(number) / (BINS_PER_OCTAVE * FINE_PER_BIN))
    return np.ceil(start - 1e-6).astype(int)


def widths(numbers: np.ndarray, shortest: int, longest: int) -> np.ndarray:
    """int `[bins]`, the distances that fine bins stand for, of those that have questions.

    The outer ones count as far as was asked, one before a gap to where the next begins.
    """
    start = np.maximum(fine_bin_start(numbers), shortest)
    return np.diff(start, append=longest + 1)


def bin_start(number: int) -> int:
    """First distance of a bin, tokens: 1, 2, 2, 3, 4, 6, 8, 12, 16, 23, 32, ..."""
    return int(np.ceil(2 ** (number / BINS_PER_OCTAVE)))


# Of all bins below 2^32 tokens, ascending: 1, 2, 3, 4, 6, ...
BIN_STARTS = np.unique([bin_start(number) for number in range(64)])
