import mpmath
import numpy as np
import pytest

from theory import asymptotic, decay


def powers(base, dim):
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)])


def test_the_zero_of_the_cosine_integral():
    zero = mpmath.findroot(mpmath.ci, 0.6)
    assert abs(zero - asymptotic.CI_ZERO) < 1e-15
    assert asymptotic.smallest_base(1.0) == pytest.approx(1.622046, rel=1e-6)


def test_the_integral_is_the_limit_of_the_sum():
    """Su 2024: f(m) ~ (Ci(m) - Ci(m / b)) / ln b, times the number of pairs."""
    m, base = 37, 1e4
    expected = float((mpmath.ci(m) - mpmath.ci(m / base)) / mpmath.log(base))
    many = 2**17
    assert asymptotic.cosine_sum(base, many, np.array([m]))[0] == pytest.approx(many / 2 * expected)
    exact = decay.cosine_sum(powers(base, many), np.array([m]))[0]
    # The sum is the trapezium rule, with half a first term too much: (cos m - cos(m/b)) / 2.
    correction = (np.cos(m) - np.cos(m / base)) / 2
    assert exact - correction == pytest.approx(many / 2 * expected, abs=1e-2)


def test_where_the_integral_breaks():
    """At 128 features and base 1e4 a turn between the first two pairs takes 47 tokens."""
    edge = asymptotic.valid_below(1e4, 128)
    assert edge == pytest.approx(2 * np.pi / (1 - 1e4 ** (-1 / 64)))
    assert 46 < edge < 47
    m = np.arange(1, 1000)
    correction = (np.cos(m) - np.cos(m / 1e4)) / 2
    exact = decay.cosine_sum(powers(1e4, 128), m) - correction
    errors = np.abs(exact - asymptotic.cosine_sum(1e4, 128, m))
    assert errors[: int(edge / 2)].max() < 0.6
    assert errors[int(edge) - 5 :].max() > 4


def test_critical_dimension_of_llama_2():
    """Liu et al. (2310.05209): 92 of 128 features at base 1e4 and 4096 tokens."""
    assert asymptotic.critical_dimension(1e4, 128, 4096) == 92
    assert asymptotic.critical_dimension(500, 128, 4096) == 128
    assert asymptotic.critical_dimension(1e4, 128, 6) == 0


def test_turns_within_a_length():
    turns = asymptotic.num_turns(np.array([1.0, 0.01, 0.0]), 1000)
    np.testing.assert_allclose(turns, [159.15494309189535, 1.5915494309189535, 0.0])
    # Pairs that complete a turn are those within the critical dimension.
    inv_freq = powers(1e4, 128)
    assert 2 * np.sum(asymptotic.num_turns(inv_freq, 4096) >= 1) == 92


def test_the_infimum_over_all_distances():
    """Four pairs, base 1e4: two million distances come within 2e-3 of it, and never below."""
    infimum = asymptotic.infimum_of_decades(4)
    lowest = decay.cosine_sum(powers(1e4, 8), np.arange(2 * 10**6)).min()
    assert infimum <= lowest < infimum + 2e-3
    # One pair: -1; two: the minimum of cos x + cos 10 x, found here by its derivative's root.
    assert asymptotic.infimum_of_decades(1) == pytest.approx(-1, abs=1e-12)
    root = mpmath.findroot(lambda x: mpmath.sin(x) + 10 * mpmath.sin(10 * x), 2.83)
    expected = float(mpmath.cos(root) + mpmath.cos(10 * root))
    assert asymptotic.infimum_of_decades(2) == pytest.approx(expected, abs=1e-9)


def test_half_at_rest_is_enough_and_nearly_needed():
    assert asymptotic.share_at_rest(-64, 64) == 0.5
    assert 0.48 < asymptotic.share_at_rest(asymptotic.infimum_of_decades(4), 4) < 0.5
