"""B_m = sum_i cos(m * inv_freq_i): how well attention tells the right token at distance m.

Men et al. 2024 (arXiv 2405.14591), Eq. 16-17: with keys k = q + noise, a query prefers the key it
looks for over a random one by an amount proportional to B_m, so the first m with B_m < 0 bounds
the context the model can use. A pair that does not turn (inv_freq 0) adds 1 at every distance.
"""

from fractions import Fraction

import numpy as np

_TWO_PI = Fraction("6.28318530717958647692528676655900576839433879875021")


def cosine_sum(inv_freq: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """B_m of each distance.

    Phases are 64-bit fixed-point fractions of a turn, so that whole turns fall off the top of
    the integer product m * frequency and nothing is rounded but the frequency itself, once.

    Args:
      inv_freq: float64 `[R]`, radians per token, taken as exact.
      distances: integers of any shape, in tokens.

    Returns:
      float64, the shape of `distances`; absolute error below R * 2e-13 for |m| < 2**20.
    """
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    distances = np.asarray(distances).astype(np.int64).astype(np.uint64)
    turning = inv_freq[inv_freq != 0]
    total = np.full(distances.shape, float(inv_freq.size - turning.size))
    for frequency in turning:
        turns = np.uint64(round(Fraction(float(frequency)) / _TWO_PI * 2**64) % 2**64)
        phase = (distances * turns).astype(np.int64)  # signed: within half a turn of 0
        total += np.cos(phase * (2 * np.pi / 2**64))
    return total


def first_negative(inv_freq: np.ndarray, limit: int = 2**20) -> int | None:
    """The first distance m < `limit`, in tokens, at which B_m < 0; None if there is none."""
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    if 2 * np.count_nonzero(inv_freq) <= inv_freq.size:
        return None  # the pairs at rest outweigh the others even if all of those give -1
    start, chunk = 0, 256  # small bases turn negative early, large ones deserve long arrays
    while start < limit:
        distances = np.arange(start, min(start + chunk, limit))
        negative = np.flatnonzero(cosine_sum(inv_freq, distances) < 0)
        if negative.size:
            return int(distances[negative[0]])
        start, chunk = start + chunk, min(2 * chunk, 2**14)
    return None


def full_period(inv_freq: np.ndarray) -> float:
    """Tokens in which the slowest turning pair completes a turn; inf when nothing turns."""
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    turning = inv_freq[inv_freq != 0]
    return float(2 * np.pi / turning.min()) if turning.size else np.inf


def quarter_period(inv_freq: np.ndarray) -> float:
    """Tokens in which that pair's cosine falls from 1 to 0; inf when nothing turns."""
    return full_period(inv_freq) / 4
