"""The sign of a sum of cosines, in arbitrary precision.

Float64 decides nearly all cases. If zero lies within the error bound of a value, the sum is
evaluated here in integers (fixed point), with an error bound again, and the precision is doubled
until zero lies outside. That terminates: the exponentials of distinct algebraic numbers are
linearly independent over the algebraic numbers (Lindemann and Weierstrass), so a sum of cosines of
algebraic angles with positive weights is never exactly zero.
"""

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction

# Angles at a precision: (numerators, bits), each angle being numerator / 2**bits radians
# with an absolute error of at most 1 / 2**bits.
Angles = Callable[[int], Sequence[int]]


@functools.cache
def two_pi(bits: int) -> int:
    """Return 2π · 2**bits, off by less than 1 (Machin: π = 16 atan(1/5) - 4 atan(1/239))."""
    guard = 64

    def inverse_arctangent(n: int) -> int:
        power = total = (1 << (bits + guard)) // n
        k, sign = 1, 1
        while power:
            power //= n * n
            k, sign = k + 2, -sign
            total += sign * (power // k)
        return total

    return (32 * inverse_arctangent(5) - 8 * inverse_arctangent(239)) >> guard


def _cosine(angle: int, bits: int) -> int:
    """Return cos(angle / 2**bits) · 2**bits for |angle| < 4 radians, off by less than `bits`."""
    term = total = 1 << bits
    square, k = angle * angle >> bits, 0
    while term:
        k += 2
        term = -(term * square >> bits) // (k * (k - 1))
        total += term
        if abs(term) <= 1:  # floor division ends at -1, never at 0, for alternating signs
            break
    return total


def sign_of_cosine_sum(angles: Angles, unrotated: int = 0, max_bits: int = 2**14) -> int:
    """Return +1 or -1, the sign of unrotated + Σ cos(angle_i).

    Args:
      angles: returns all angles at a precision of `bits`: integers n_i with the angle within
        2**-bits radians of n_i / 2**bits.
      unrotated: number of further terms, which are exactly 1.

    Raises:
      ArithmeticError: if `max_bits` do not decide, which the theorem above excludes in the limit.
    """
    bits = 128
    while bits <= max_bits:
        cycle = two_pi(bits + 64)
        numerators = angles(bits)
        total = unrotated << bits
        for numerator in numerators:
            reduced = (numerator << 64) % cycle
            reduced = reduced - cycle if 2 * reduced > cycle else reduced
            total += _cosine(reduced >> 64, bits)
        # Angle 1, whole cycles 2**-64 each (fewer than 2**63), shift 1, series `bits`.
        error = len(numerators) * (bits + 8)
        if abs(total) > error:
            return 1 if total > 0 else -1
        bits *= 2
    raise ArithmeticError(f"sign of a cosine sum undecided at {max_bits} bits")


def products(inv_freq: Sequence[float], distance: int) -> Angles:
    """Return the angles distance · inv_freq_i; the float64 frequencies are exact."""
    exact = [Fraction(float(frequency)) * distance for frequency in inv_freq]
    return lambda bits: [(angle.numerator << bits) // angle.denominator for angle in exact]
