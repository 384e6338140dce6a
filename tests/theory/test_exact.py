import math
from fractions import Fraction

import mpmath
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.theory import exact


def reference(inv_freq, distance, unrotated=0):
    with mpmath.workdps(80):
        return unrotated + mpmath.fsum(mpmath.cos(distance * mpmath.mpf(w)) for w in inv_freq)


def test_two_pi_to_a_thousand_bits():
    with mpmath.workprec(1200):
        assert abs(exact.two_pi(1000) - 2 * mpmath.pi * 2**1000) < 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-9, 3.0), min_size=1, max_size=8),
    st.integers(0, 2**31 - 1),
    st.integers(0, 3),
)
def test_signs_agree_with_eighty_digits(inv_freq, distance, unrotated):
    expected = reference(inv_freq, distance, unrotated)
    angles = exact.products(inv_freq, distance)
    assert exact.sign_of_cosine_sum(angles, unrotated) == mpmath.sign(expected)


def test_precision_doubles_until_it_decides():
    """Angles a and pi - a + 2^-300 need the third precision."""
    tiny, precisions = Fraction(1, 2**300), []

    def angles(bits):
        precisions.append(bits)
        half_turn = Fraction(exact.two_pi(2000), 2**2001)
        return [math.floor(a * 2**bits) for a in (Fraction(1), half_turn - 1 + tiny)]

    assert exact.sign_of_cosine_sum(angles) == -1
    tiny = -tiny
    assert exact.sign_of_cosine_sum(angles) == 1
    assert precisions == [128, 256, 512] * 2
