"""Positions told apart by a head: the other side of B_m.

Du et al. 2026 (arXiv 2605.15514) write the score of a query and a key at distance m as a sum over
pairs, s(m) = Σ C_i cos(m ω_i + φ_i), and ask how often a key scores higher where it is farther away
(position inversion). They prove that a larger base tells tokens apart better and positions worse.
Here a key is moved from distance m to m + δ, and the same sum is evaluated in three ways:

1. Phases are independent. The score then changes by C_i² (1 - cos δ ω_i) of each pair in mean
   square, at every m; with equal C the sum is Σ (1 - cos δ ω_i) = B_0 - B_δ. As the base grows,
   every term with δ ω_i <= π falls, and in the limit the fastest pair alone is left. So one B_m
   must be large at m for recall, and small at δ for order.
2. All C are equal and all phases 0 (Men et al. 2024: s is B_m). An inversion is a distance m with
   B_(m+δ) > B_m. With one pair left, half of all distances are inversions.
3. Weights and phases are those that separate best, as for `theory.capability`, with its f and unit:

       separation(M, δ) = √2 max_{|w| <= 1} min_{1 <= m, m + δ <= M} w . (f(m) - f(m+δ))

   is √2 times the distance of 0 from a convex hull. If it is positive, a head can prefer the nearer
   (with -w the farther) of two equal keys at all distances up to M.
"""

import math
from typing import NamedTuple

import numpy as np

from ropewalk.theory import decay
from ropewalk.theory.capability import LONGEST, nearest_point, responses

_SUM_ERROR = 3e-15  # of B_m, for each pair and four more (`decay.cosine_sum`)


class Positions(NamedTuple):
    """Numbers of how a head tells a key from an equal one that is δ tokens farther away.

    Attributes:
      step: B_0 - B_δ, with an absolute error below 1e-12 up to 512 features.
      limit: of `step`, as the base grows: the term of the fastest pair.
      inversions: number of distances with B_(m+δ) > B_m for certain.
      undecided: number of distances at which B_m is too near to B_(m+δ) to tell.
      distances: number of distances m with 1 <= m and m + δ <= M.
      separation: attained by the computed weights, in standard deviations of a key that does not
        match.
      certificate: upper bound of the separation over all weights.
    """

    step: float
    limit: float
    inversions: int
    undecided: int
    distances: int
    separation: float
    certificate: float


def tell_apart(inv_freq: np.ndarray, length: int, apart: int = 1) -> Positions:
    """Compute how well a head tells positions apart.

    Args:
      inv_freq: float64 `[R]`, radians per token; 0 for unrotated pairs.
      length: M, the longest distance, tokens.
      apart: δ, tokens.

    Raises:
      ValueError: unless 1 <= apart < length <= 2^17.
    """
    if not 1 <= apart < length <= LONGEST:
        raise ValueError(
            f"apart={apart} and length={length} tokens are not allowed: 1 <= apart < length <= "
            f"{LONGEST}"
        )
    inv_freq = np.asarray(inv_freq, dtype=np.float64)
    distances = np.arange(1, length + 1)
    sums, f_MW = decay.cosine_sum(inv_freq, distances), responses(inv_freq, distances)
    rises, changes_MW = sums[apart:] - sums[:-apart], f_MW[:-apart] - f_MW[apart:]
    error = 2 * _SUM_ERROR * (inv_freq.size + 4)
    point_W = nearest_point(changes_MW)
    norm = float(np.linalg.norm(point_W))
    attained = max(0.0, float((changes_MW @ point_W).min()))
    fastest = np.abs(inv_freq).max()
    return Positions(
        step=float(inv_freq.size - sums[apart - 1]),
        limit=1 - math.cos(apart * fastest),
        inversions=int((rises > error).sum()),
        undecided=int((np.abs(rises) <= error).sum()),
        distances=length - apart,
        separation=math.sqrt(2) * attained / norm if attained else 0.0,
        certificate=math.sqrt(2) * norm,
    )
