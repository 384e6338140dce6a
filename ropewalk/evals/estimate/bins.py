"""Bins of distance: half an octave each, divided into four fine bins.

Figures and tables show accuracy by bins. Estimates use fine bins, an eighth of an octave, because
half an octave would blur sharper edges and hide narrower dips.
"""

from collections.abc import Sequence

import numpy as np

BINS_PER_OCTAVE = 2
FINE_PER_BIN = 4


def fine_bin_number(distance: np.ndarray | int) -> np.ndarray:
    """Return the fine bin of each distance in tokens, int `[...]`."""
    log_distance = np.log2(np.maximum(distance, 1))
    # The epsilon keeps powers of two, the first distance of a bin, in their bin.
    return np.floor(log_distance * BINS_PER_OCTAVE * FINE_PER_BIN + 1e-9).astype(int)


def bin_number(distance: np.ndarray | int) -> np.ndarray:
    """Return the bin of each distance in tokens, int `[...]`."""
    return fine_bin_number(distance) // FINE_PER_BIN


def fine_bin_start(number: np.ndarray | int) -> np.ndarray:
    """Return the first distance of each fine bin, int `[...]`: 0 -> 1, 8 -> 2, 38 -> 28."""
    start = 2 ** (np.asarray(number) / (BINS_PER_OCTAVE * FINE_PER_BIN))
    return np.ceil(start - 1e-6).astype(int)


def widths(numbers: np.ndarray, shortest: int, longest: int) -> np.ndarray:
    """Return the number of distances that each fine bin stands for, int `[bins]`.

    The outermost bins end at `shortest` and `longest`. A bin before bins without questions extends
    to the next bin with questions.
    """
    start = np.maximum(fine_bin_start(numbers), shortest)
    return np.diff(start, append=longest + 1)


def group_bins(counts: Sequence[float] | np.ndarray, minimum: int) -> np.ndarray:
    """Join neighboring bins up to a minimum of trials: the group of each bin, int `[bins]`.

    Bins at the far end with too few trials join the last group that has enough.
    """
    group, number, so_far = [], 0, 0.0
    for count in counts:
        if so_far >= minimum:
            number, so_far = number + 1, 0.0
        group.append(number)
        so_far += count
    if so_far < minimum and number:
        group = [min(bin_group, number - 1) for bin_group in group]
    return np.array(group)


def bin_start(number: int) -> int:
    """Return the first distance of a bin, tokens: 1, 2, 2, 3, 4, 6, 8, 12, 16, 23, 32, ..."""
    return int(np.ceil(2 ** (number / BINS_PER_OCTAVE)))


# First distances of all bins below 2^32 tokens, ascending: 1, 2, 3, 4, 6, ...
BIN_STARTS = np.unique([bin_start(number) for number in range(64)])
