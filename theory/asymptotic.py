"""Rules of thumb: what closed formulas say of a base and a length, and where they hold."""

import math

import numpy as np
from scipy.special import sici

# First zero of Ci(x) = -∫_x^∞ cos t / t dt.
CI_ZERO = 0.6165054856207162


def cosine_sum(base: float, head_dim: int, distances: np.ndarray) -> np.ndarray:
    """B_m as an integral over pairs: head_dim/2 · (Ci(m) - Ci(m / base)) / ln base (Su 2024).

    Args:
      base: of plain RoPE, above 1.
      head_dim: features of a head.
      distances: tokens, above 0.

    Returns:
      float64, the shape of `distances`. Close to B_m below `valid_below` tokens only.
    """
    m = np.asarray(distances, dtype=np.float64)
    return head_dim / 2 * (sici(m)[1] - sici(m / base)[1]) / math.log(base)


def smallest_base(length: float) -> float:
    """length / 0.6165…: b* as head_dim grows without end. Real heads need far more."""
    return length / CI_ZERO


def valid_below(base: float, head_dim: int) -> float:
    """Distance, in tokens, below which the integral stands for the sum.

    By Poisson's formula the sum is the integral plus one term for every whole number k of turns
    between neighbouring pairs: small while the angle step m (1 - base^(-2/head_dim)) at the
    fastest pair is below one turn, as large as the integral beyond.
    """
    return 2 * math.pi / -math.expm1(-2 * math.log(base) / head_dim)


def critical_dimension(base: float, head_dim: int, trained_length: int) -> int:
    """Features whose pairs turn at least once in the trained length (Liu et al., 2310.05209).

    2 ⌈head_dim/2 · log_base(trained_length / 2π)⌉, within [0, head_dim]: the others meet angles
    they were never trained on as soon as the context grows.
    """
    pairs = head_dim / 2 * math.log(trained_length / (2 * math.pi)) / math.log(base)
    return int(min(max(2 * math.ceil(pairs), 0), head_dim))


def num_turns(inv_freq: np.ndarray, length: int) -> np.ndarray:
    """How many turns each pair makes in `length` tokens, float64 `[R]`; 0 for a pair at rest."""
    return np.asarray(inv_freq, dtype=np.float64) * length / (2 * math.pi)


def infimum_of_decades(num_decades: int) -> float:
    """inf over all m of B_m of 1, 1/10, 1/100, … radians a token; to 1e-9, for up to 5 of them.

    With base 1e4 and a number of pairs 4 n, plain RoPE is n such sets of four decades. Different
    sets are independent over the rationals, of each other and of π, so by Kronecker's theorem
    their phases come together as close to any wish as one likes: the infimum over all distances
    is n times this.
    """
    phase = np.linspace(0, 2 * math.pi, 400 * 10 ** (num_decades - 1))
    width = phase[1]
    for _ in range(5):
        total = sum(np.cos(10**decade * phase) for decade in range(num_decades))
        lowest = phase[np.argmin(total)]
        phase = np.linspace(lowest - width, lowest + width, 2001)
        width /= 1000
    return float(np.min(total))


def share_at_rest(infimum: float, num_pairs: int) -> float:
    """Share of a head that must not turn so that B_m >= 0 for all m, whatever the length.

    Args:
      infimum: of the sum over `num_pairs` turning pairs; -num_pairs gives Su's sufficient half.
      num_pairs: how many.
    """
    return -infimum / (num_pairs - infimum)
