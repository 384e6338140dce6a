import mpmath
import pytest

from theory import asymptotic


def test_the_zero_of_the_cosine_integral():
    zero = mpmath.findroot(mpmath.ci, 0.6)
    assert abs(zero - asymptotic.CI_ZERO) < 1e-15
    assert asymptotic.smallest_base(1.0) == pytest.approx(1.622046, rel=1e-6)


def test_critical_dimension_of_llama_2():
    """Liu et al. (2310.05209): 92 of 128 features at base 1e4 and 4096 tokens."""
    assert asymptotic.critical_dimension(1e4, 128, 4096) == 92
    assert asymptotic.critical_dimension(500, 128, 4096) == 128
    # Llama 3's, also by wavelengths: pair 34 takes 6695 tokens of 8192, pair 35 takes 8219.
    assert asymptotic.critical_dimension(5e5, 128, 8192) == 70
    assert asymptotic.critical_dimension(1e4, 128, 6) == 0
