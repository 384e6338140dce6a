"""B_m = sum_i cos(m * inv_freq_i): the advantage of a matching token at distance m.

Men et al. 2024 (arXiv 2405.14591), Eq. 16-17: with keys k = q + noise, the expected logit gap
between a matching key and a random one is proportional to B_m, so the first m with B_m < 0 bounds
the context that the model can use. An unrotated pair (inv_freq 0) adds 1 at every distance.

Error bounds below hold if numpy's float64 cos and sin are within `_COSINE_ERROR` on [-π, π];
tests compare them with 50 digits.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

LONGEST = 2**31  # distances below this are reduced exactly

_UNIT = 2.0**-53  # relative rounding error of float64
_COSINE_ERROR = 8 * _UNIT  # absolute error of numpy's cos and sin: 8 times the bound of libm
_INVERSE_TWO_PI = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107F  # 2**200 / 2π
_COLUMNS = 256
_BLOCK = 2**20  # distances of a block: 8 MiB


def _cycles(inv_freq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fractional part of cycles per token: 96 bits as uint64 `[R]` (high, low 32).

    Rounded down by less than 2**-96 cycle.
    """
    ratios = [frequency.as_integer_ratio() for frequency in inv_freq.tolist()]
    cycles = [(above * _INVERSE_TWO_PI // below >> 104) % 2**96 for above, below in ratios]
    high, low = [cycle >> 32 for cycle in cycles], [cycle % 2**32 for cycle in cycles]
    return np.array(high, dtype=np.uint64), np.array(low, dtype=np.uint64)


def _phases(cycles: tuple[np.ndarray, np.ndarray], distances: np.ndarray) -> np.ndarray:
    """Return angles in [-π, π], radians, of every distance (rows) and frequency (columns).

    Off by less than 12 * 2**-53: 2**-62 cycle from the fixed point, three roundings of up to π.
    """
    high, low = cycles
    m = np.abs(distances).astype(np.uint64)[:, None]
    # Whole cycles overflow the 64-bit products; only the frequency is rounded.
    phase = m * high + (m * low >> np.uint64(32))
    return phase.view(np.int64) * (2 * np.pi / 2**64)


def cosine_sum(inv_freq: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return B_m of each distance.

    Args:
      inv_freq: float64 `[R]`, radians per token, taken as exact.
      distances: integers of any shape, in tokens.

    Returns:
      float64, the shape of `distances`; absolute error below (R + 4) * 3e-15 for distances
      within 2**31, so below 1e-12 up to head_dim 512.

    Raises:
      ValueError: for a distance beyond 2**31.
    """
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    distances = np.asarray(distances).astype(np.int64)
    flat = distances.ravel()
    if np.abs(flat).max(initial=0) >= LONGEST:
        raise ValueError(f"distances must be below 2^31 tokens, got {np.abs(flat).max()}")
    rotated = inv_freq[inv_freq != 0]
    cycles, unrotated = _cycles(rotated), inv_freq.size - rotated.size
    total = np.empty(flat.shape)
    for start in range(0, flat.size, 2**14):
        part = slice(start, start + 2**14)
        terms = np.cos(_phases(cycles, flat[part]))
        # Extended precision: adding hundreds of terms in float64 could cost a digit.
        total[part] = terms.sum(axis=1, dtype=np.longdouble) + unrotated
    return total.reshape(distances.shape)


def attention_bound(inv_freq: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return the sum of Men et al. 2024, Eq. 14, which bounds attention scores, by distance.

    |q R_m k| <= max_l |h_l - h_(l+1)| * sum_(n=1..R) |sum_(l<n) exp(i m inv_freq_l)|, with h_l the
    complex product of pair l of query and key (Su et al. 2021, section 3.4.3). It depends on the
    order of the pairs, and says nothing about which keys match.

    Args:
      inv_freq: float64 `[R]`, radians per token, in the order of the pairs.
      distances: integers of any shape, in tokens, below 2**31.

    Returns:
      float64, the shape of `distances`; R (R + 1) / 2 at distance 0.
    """
    distances = np.asarray(distances).astype(np.int64)
    phases = _phases(_cycles(np.asarray(inv_freq, dtype=np.float64)), distances.ravel())
    sums = np.abs(np.cumsum(np.exp(1j * phases), axis=1)).sum(axis=1)
    return sums.reshape(distances.shape)


def scan(inv_freq: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, np.ndarray, float]]:
    """Yield B_m of every distance start <= m < stop, fast.

    cos((r + c)θ) = cos rθ cos cθ - sin rθ sin cθ, so a block of distances is one matrix product
    of a few thousand cosines: a million distances take tens of milliseconds.

    Yields:
      (first distance of the block, float64 values of the block, bound on their absolute error).
    """
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    rotated = inv_freq[inv_freq != 0]
    unrotated = float(inv_freq.size - rotated.size)
    cycles = _cycles(rotated)
    columns = _phases(cycles, np.arange(_COLUMNS))
    columns = np.ascontiguousarray(np.concatenate([np.cos(columns), np.sin(columns)], axis=1).T)
    error = scan_error(rotated.size) + inv_freq.size * _UNIT
    size = 16 * _COLUMNS  # small bases turn negative early, large ones need long blocks
    while start < stop:
        count = min(size, stop - start)
        rows = _phases(cycles, np.arange(start, start + count, _COLUMNS))
        rows = np.concatenate([np.cos(rows), -np.sin(rows)], axis=1)
        yield start, _product(rows, columns).ravel()[:count] + unrotated, error
        start, size = start + count, min(4 * size, _BLOCK)


def _product(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return rows @ columns, in slices too small for BLAS threads.

    On a busy machine, threads that wait for each other take longer than the product.
    """
    inner = max(1, 2**18 // columns.shape[1])
    if len(columns) > inner:  # of a head of more than 1,024 features
        parts = range(0, len(columns), inner)
        return np.sum([_product(rows[:, i : i + inner], columns[i : i + inner]) for i in parts], 0)
    height = max(1, 2**18 // max(1, columns.size))
    end = len(rows) - len(rows) % height
    slices = rows[:end].reshape(end // height, height, rows.shape[1]) @ columns
    return np.concatenate([slices.reshape(end, columns.shape[1]), rows[end:] @ columns])


def scan_error(num_pairs: int) -> float:
    """Return a bound on the error of `scan`, before unrotated pairs are added.

    Each of the four factors of a pair is off by at most 12 + 8 units, each product by slightly
    more than 2 * 20; a matrix product of inner size k adds at most k units of Σ|a b| <= 1 per pair,
    whatever its order of summation (Higham 2002, Section 3.5).
    """
    return num_pairs * (4 * 21 + 2.02 * num_pairs) * _UNIT


def first_violation(inv_freq: np.ndarray, limit: int = 2**20) -> int | None:
    """Return the first distance m < `limit`, in tokens, with B_m < 0; None if there is none.

    The decision is rigorous for the exact value of every float64 frequency: a sum within the error
    bound of zero is evaluated again with more digits.

    Raises:
      ValueError: for a limit above 2**31.
    """
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    if limit > LONGEST:
        raise ValueError(f"limit must be at most 2^31 tokens, got {limit}")
    if is_never_negative(inv_freq):
        return None
    rotated = inv_freq[inv_freq != 0].tolist()
    for start, values, error in scan(inv_freq, 0, limit):
        for index in np.flatnonzero(values < error):
            m = start + int(index)
            unrotated = inv_freq.size - len(rotated)
            if values[index] < -error or _is_negative(rotated, m, unrotated):
                return m
    return None


def is_never_negative(inv_freq: np.ndarray) -> bool:
    """Return whether unrotated pairs outweigh the others at every distance, even if those give -1.

    It is sufficient for B_m >= 0, not necessary.
    """
    return bool(2 * np.count_nonzero(inv_freq) <= np.size(inv_freq))


def _is_negative(rotated: Sequence[float], distance: int, unrotated: int) -> bool:
    """Return whether unrotated + sum_i cos(distance · rotated_i) < 0.

    Digits are added until they decide, which they do: the exponentials of distinct algebraic
    numbers are linearly independent over the algebraic numbers (Lindemann and Weierstrass), so such
    a sum is never exactly zero.

    Raises:
      ArithmeticError: if 16,384 bits do not decide.
    """
    import mpmath  # late: it takes a moment, and float64 decides nearly all cases

    for bits in (2**power for power in range(7, 15)):
        with mpmath.workprec(bits):  # the angles are exact: 53 bits times 31
            total = unrotated + mpmath.fsum(mpmath.cos(distance * mpmath.mpf(x)) for x in rotated)
            if abs(total) > len(rotated) * mpmath.mpf(2) ** (8 - bits):
                return bool(total < 0)
    raise ArithmeticError(f"sign of a sum of cosines undecided at distance {distance}")


def full_period(inv_freq: np.ndarray) -> float:
    """Return the period of the slowest rotated pair, tokens; inf if no pair is rotated."""
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    rotated = inv_freq[inv_freq != 0]
    return float(2 * np.pi / np.abs(rotated).min()) if rotated.size else np.inf


def quarter_period(inv_freq: np.ndarray) -> float:
    """Return a quarter of that period, in which the pair's cosine falls from 1 to 0."""
    return full_period(inv_freq) / 4


def latest(violations: Iterable[int | None]) -> int | None:
    """Return the largest of first violations; None means never and is larger than all."""
    return max(violations, key=lambda first: np.inf if first is None else first)


def violations(inv_freq: np.ndarray, limit: int) -> list[list[int | None]]:
    """Return the first violation of every head of a rotary table, in tokens; None if there is none.

    Args:
      inv_freq: float64 `[L, K, R]`, radians per token.
      limit: distances below this are tested.
    """
    heads = {tuple(head) for layer in inv_freq.tolist() for head in layer}
    firsts = {head: first_violation(np.array(head), limit) for head in heads}
    return [[firsts[tuple(head)] for head in layer] for layer in inv_freq.tolist()]
