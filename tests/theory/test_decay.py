import mpmath
import numpy as np
import pytest

from theory.decay import cosine_sum, first_negative, full_period, quarter_period


def powers(base, dim):
    """The geometric series, written out here so that the test owns its input."""
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)])


def exact_cosine_sum(inv_freq, distance):
    with mpmath.workdps(50):
        return mpmath.fsum(mpmath.cos(int(distance) * mpmath.mpf(float(w))) for w in inv_freq)


@pytest.mark.parametrize("base, dim", [(1.5, 128), (10.0, 64), (1e4, 128), (1e6, 64), (1e8, 256)])
def test_cosine_sum_agrees_with_fifty_digits(base, dim):
    inv_freq = powers(base, dim)
    distances = np.random.default_rng(0).integers(0, 2**20, size=40)
    distances[:3] = 0, 1, 2**20 - 1
    ours = cosine_sum(inv_freq, distances)
    errors = [abs(exact_cosine_sum(inv_freq, m) - b) for m, b in zip(distances, ours, strict=True)]
    # The promise is 1e-9. Multiplying in float64 alone, the usual way, is 5e-11 to 5e-10 off.
    assert max(errors) < 1e-11


def test_one_pair_is_one_cosine():
    np.testing.assert_allclose(
        cosine_sum([1.0], [0, 1, 2]), [1, 0.5403023058681398, -0.4161468365471424]
    )


def test_a_pair_at_rest_adds_one_at_every_distance():
    distances = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(cosine_sum(np.zeros(4), distances), np.full((2, 3), 4.0))
    with_rest = cosine_sum([1.0, 0.0, 0.0], distances)
    np.testing.assert_allclose(with_rest, np.cos(distances) + 2, atol=1e-15)


# First m with B_m < 0, found by independent scripts (plain float64 loops) before this code existed.
PUBLISHED = {
    32: {10: 5, 30: 16, 100: 28, 300: 59, 500: 103, 1e3: 122, 1e4: 474, 1e5: 1283, 1e6: 3478},
    64: {10: 5, 30: 17, 100: 46, 300: 102, 500: 154, 1e3: 197, 1e4: 725, 1e5: 3616, 1e6: 6235},
    128: {10: 5, 30: 17, 100: 59, 300: 122, 500: 171, 1e3: 361, 1e4: 1707, 1e5: 7757, 1e6: 27115},
}


@pytest.mark.parametrize("dim", PUBLISHED)
def test_first_negative_of_the_geometric_series(dim):
    found = {base: first_negative(powers(base, dim)) for base in PUBLISHED[dim]}
    assert found == PUBLISHED[dim]


def test_the_bound_is_not_monotone_in_the_base():
    """So it may never be interpolated or found by bisection (Su's post says the same)."""
    assert first_negative(powers(5e5, 64)) == 9937
    assert first_negative(powers(1e6, 64)) == 6235


def test_first_negative_stops_at_its_limit():
    """B_m of base 1e4 and 128 features is negative at 1707 and nowhere before."""
    inv_freq = powers(1e4, 128)
    assert first_negative(inv_freq, limit=1707) is None
    assert first_negative(inv_freq, limit=1708) == 1707


@pytest.mark.parametrize("first", [1, 100, 255, 256, 257, 768, 16128, 2**17])
def test_one_slow_pair_turns_negative_after_a_quarter_turn(first):
    """cos(m w) < 0 first where m w passes pi / 2: no distance is skipped on the way."""
    assert first_negative([np.pi / 2 / (first - 0.5)]) == first


def test_pairs_at_rest_push_the_bound_out_of_reach():
    turning = powers(10.0, 64)
    assert first_negative(np.zeros(32)) is None
    assert first_negative(np.concatenate([turning, np.zeros(32)])) is None
    # Two pairs near half a turn a token outweigh one at rest at once; one pair never does.
    assert first_negative([3.0, 0.0]) is None
    assert first_negative([3.0, 3.0, 0.0]) == 1


def test_periods_of_the_slowest_pair():
    """Literals of (pi/2) b^(1-2/d) and 2 pi b^(1-2/d) at d = 64."""
    assert quarter_period(powers(1e4, 64)) == pytest.approx(11779.3, rel=1e-5)
    assert full_period(powers(100, 64)) == pytest.approx(544.0, rel=5e-4)
    assert full_period([0.5, 0.25, 0.0]) == pytest.approx(25.132741228718345)
    assert quarter_period([0.5, 0.25, 0.0]) == pytest.approx(6.283185307179586)


def test_nothing_turning_has_no_period():
    assert quarter_period(np.zeros(8)) == np.inf
    assert full_period(np.zeros(8)) == np.inf
