import mpmath
import numpy as np
import pytest

from ropewalk.theory import decay
from ropewalk.theory.decay import cosine_sum, first_violation, full_period, quarter_period


def powers(base, dim):
    """Return the geometric series, independently of the code under test."""
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)])


def exact_cosine_sum(inv_freq, distance):
    with mpmath.workdps(50):
        return mpmath.fsum(mpmath.cos(int(distance) * mpmath.mpf(float(w))) for w in inv_freq)


@pytest.mark.parametrize("limit", [2**20, 2**31])
@pytest.mark.parametrize("base, dim", [(1.5, 128), (10.0, 64), (1e4, 128), (1e6, 512), (1e8, 256)])
def test_cosine_sum_agrees_with_fifty_digits(base, dim, limit):
    """Multiplying in float64 alone, the usual way, is 5e-11 to 1e-7 off."""
    inv_freq = powers(base, dim)
    distances = np.random.default_rng(0).integers(0, limit, size=20)
    distances[:3] = 0, 1, limit - 1
    ours = cosine_sum(inv_freq, distances)
    errors = [abs(exact_cosine_sum(inv_freq, m) - b) for m, b in zip(distances, ours, strict=True)]
    assert max(errors) < 1e-12


def test_numpy_is_as_accurate_as_assumed():
    """The error bounds of this folder assume four times these errors."""
    angles = np.random.default_rng(0).uniform(-np.pi, np.pi, 4000)
    for ours, theirs in ((np.cos, mpmath.cos), (np.sin, mpmath.sin)):
        values = ours(angles)
        with mpmath.workdps(40):
            errors = [abs(theirs(float(a)) - v) for a, v in zip(angles, values, strict=True)]
        assert max(errors) < decay._COSINE_ERROR / 4
    exponents = np.random.default_rng(1).uniform(-40, 0, 4000)
    with mpmath.workdps(40):
        pairs = zip(exponents, np.exp(exponents), strict=True)
        assert max(abs(v / mpmath.exp(float(x)) - 1) for x, v in pairs) < 2 * 2**-53


@pytest.mark.parametrize("base, dim, start", [(1e4, 128, 0), (7.0, 64, 10**6), (1e8, 256, 2**30)])
def test_scan_is_within_its_own_bound(base, dim, start):
    inv_freq = np.append(powers(base, dim), [0.0, 0.0])
    covered = start
    for first, values, error in decay.scan(inv_freq, start, start + 30_000):
        assert first == covered and error < 2e-11
        covered += len(values)
        picked = np.random.default_rng(0).integers(0, len(values), 8)
        for index in picked:
            assert abs(exact_cosine_sum(inv_freq, first + index) - values[index]) < error
    assert covered == start + 30_000


@pytest.mark.parametrize(
    ("dim", "expected"),
    [  # found by independent scripts (plain float64 loops) before this code existed
        (32, {10: 5, 100: 28, 1e3: 122, 1e6: 3478}),
        (64, {10: 5, 30: 17, 300: 102, 1e4: 725}),
        (128, {30: 17, 500: 171, 1e4: 1707, 1e6: 27115}),
    ],
)
def test_first_violation_of_the_geometric_series(dim, expected):
    assert {base: first_violation(powers(base, dim)) for base in expected} == expected


def test_signs_within_rounding_of_zero_are_decided_by_more_digits():
    """cos(a) + cos(fl(pi - a)) is 5e-17 or less: its sign is known exactly, or m = 1 is a guess."""
    signs = set()
    for split in np.linspace(0.3, 1.5, 25):
        pair = [split, np.pi - split]
        value = exact_cosine_sum(pair, 1)
        assert abs(value) < 3e-16
        assert (first_violation(pair, limit=2) == 1) == (value < 0)
        signs.add(bool(value < 0))
    assert signs == {True, False}


@pytest.mark.parametrize("first", [1, 100, 255, 256, 257, 768, 16128, 2**17])
def test_one_slow_pair_turns_negative_after_a_quarter_turn(first):
    """cos(m w) < 0 first when m w exceeds pi / 2; the scan must not skip a distance."""
    assert first_violation([np.pi / 2 / (first - 0.5)]) == first


def test_unrotated_pairs_remove_the_violation():
    turning = powers(10.0, 64)
    assert first_violation(np.zeros(32)) is None
    assert first_violation(np.concatenate([turning, np.zeros(32)])) is None
    # Two pairs near half a cycle per token outweigh an unrotated one at once; one pair never does.
    assert first_violation([3.0, 0.0]) is None
    assert first_violation([3.0, 3.0, 0.0]) == 1


def test_periods_of_the_slowest_pair():
    assert full_period([0.5, 0.25, 0.0]) == pytest.approx(25.132741228718345)
    assert quarter_period([0.5, 0.25, 0.0]) == pytest.approx(6.283185307179586)


def test_upper_bound_of_attention_scores_against_50_digits():
    """Men et al. 2024, Eq. 14, and the inequality itself on random queries and keys."""
    inv_freq = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    distances = np.array([0, 1, 7, 1000, 123_457])
    values = decay.attention_bound(inv_freq, distances)
    assert values[0] == 36  # 1 + 2 + ... + 8
    with mpmath.workdps(50):
        for m, value in zip(distances.tolist(), values, strict=True):
            terms = [mpmath.expj(m * mpmath.mpf(float(frequency))) for frequency in inv_freq]
            sums = [abs(mpmath.fsum(terms[:n])) for n in range(1, 9)]
            assert abs(value - mpmath.fsum(sums)) < 1e-11
    random = np.random.default_rng(0)
    query, key = random.normal(size=(2, 500, 8, 2)) @ [1, 1j]
    products = query * key.conj()
    steps = np.abs(np.diff(products, append=0, axis=1)).max(axis=1)
    for m, value in zip(distances, values, strict=True):
        scores = np.abs((products * np.exp(1j * m * inv_freq)).sum(axis=1).real)
        assert (scores <= steps * value * (1 + 1e-9)).all()
