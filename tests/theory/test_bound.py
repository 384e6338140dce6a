import bisect
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ropewalk.model import rotary
from ropewalk.reporting.predictions import predict
from ropewalk.theory import bound, decay, published


def exact(x, m, head_dim, rotary_fraction=1.0):
    """Return B_m of plain RoPE of base e^x with fifty digits, from the formula of the paper."""
    rotary_dim = 2 * int(head_dim * rotary_fraction / 2)
    with mpmath.workdps(55):
        step, angles = mpmath.exp(-mpmath.mpf(x) * 2 / rotary_dim), [mpmath.mpf(int(m))]
        for _ in range(rotary_dim // 2 - 1):
            angles.append(angles[-1] * step)
        turning = mpmath.fsum(map(mpmath.cos, angles))
        return turning + (head_dim - rotary_dim) // 2


def direct(bases, length, head_dim):
    """Return the smallest B_m over m < length for each base in float64, exact to 1e-9 here."""
    powers = -np.arange(0, head_dim, 2) / head_dim
    return np.array(
        [np.cos(np.outer(np.arange(length), b**powers)).sum(axis=1).min() for b in bases]
    )


def check(answer, head_dim, *, samples=4, every=1):
    """Check a proof independently: contiguous, in range, negative at both ends and inside."""
    left, right, witnesses = map(np.array, zip(*answer.certificate, strict=True))
    assert left[0] == 0 and np.all(left[1:] == right[:-1]) and math.exp(right[-1]) == answer.low
    assert np.all(left < right)
    assert witnesses.min() > 0 and witnesses.max() < answer.length
    rng = np.random.default_rng(0)
    for low, high, m in answer.certificate[::every]:
        for x in (low, high, *rng.uniform(low, high, samples)):
            assert exact(x, m, head_dim) < 0, (x, m)
    assert answer.low < answer.high <= answer.low * (1 + 1e-8)


# --- the answer ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smallest():
    return bound.smallest(bound.pairs_of(128), published.LENGTHS[:6])


def test_su_s_two_digits_are_proved(smallest):
    ours = [f"{answer.high:.1e}" for answer in smallest]
    assert ours == ["4.3e+03", "1.2e+04", "2.7e+04", "8.4e+04", "2.3e+05", "6.3e+05"]
    check(smallest[0], 128)
    check(smallest[5], 128, samples=2, every=13)


def test_the_critical_distance_changes_sign_between_low_and_high(smallest):
    pairs = bound.pairs_of(128)
    for answer in smallest:
        assert answer.critical < answer.length
        assert exact(mpmath.log(answer.low), answer.critical, 128) < 0
        assert exact(mpmath.log(answer.high), answer.critical, 128) > 0
        # B_m is -1e-3 or so just below, at one distance only.
        assert bound.is_feasible(pairs, math.log(answer.high), answer.length)
        assert not bound.is_feasible(pairs, math.log(answer.low * (1 - 1e-7)), answer.length)


def test_half_of_the_pairs_unrotated_covers_every_length():
    """Su 2024: for each rotated pair there is an unrotated one, and 1 + cos >= 0."""
    for fraction in (0.5, 0.25):
        answer = bound.smallest_base(2**31, 64, fraction)
        assert answer.low == 1.0 and answer.high < 1 + 1e-8
        assert answer.critical is None and not answer.certificate
        everything = [(1.0, math.inf)], []
        assert bound.intervals(bound.pairs_of(64, fraction), 2**31) == everything


@pytest.mark.long  # the first six are in test_su_s_two_digits_are_proved
def test_all_lengths_of_the_papers():
    answers = bound.smallest(bound.pairs_of(128), published.LENGTHS)
    assert tuple(float(f"{answer.high:.1e}") for answer in answers) == tuple(
        published.SU_2024.values()
    )
    for answer, men in zip(answers, published.MEN_2024.values(), strict=True):
        assert float(f"{answer.high:.1e}") <= men
    check(answers[-1], 128, samples=1, every=997)


def test_the_zero_of_the_cosine_integral():
    assert abs(mpmath.findroot(mpmath.ci, 0.6) - published.CI_ZERO) < 1e-15


# --- against direct evaluation -------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 200), st.floats(0.001, 12), st.sampled_from([8, 16, 32]), st.sampled_from([1, 2])
)
@example(8, math.log(10), 16, 1)
def test_feasibility_is_that_of_fifty_digits(length, x, head_dim, one_in):
    """For random lengths and bases, and heads with a quarter unrotated or none."""
    base, fraction = math.exp(x), 1.0 if one_in == 1 else 0.75
    with mpmath.workdps(50):
        x = mpmath.log(base)
    expected = all(exact(x, m, head_dim, fraction) >= 0 for m in range(length))
    answer = bound.smallest_base(length, head_dim, fraction)
    if base < answer.low:
        assert not expected
        index = bisect.bisect(answer.certificate, (float(x),)) - 1
        assert exact(x, answer.certificate[index][2], head_dim, fraction) < 0
    if base >= stable(length, head_dim, fraction):
        assert expected


# --- stable base and intervals ------------------------------------------------------------------


def stable(length, head_dim, rotary_fraction=1.0):
    """Return the base above which all are feasible."""
    pairs = bound.pairs_of(head_dim, rotary_fraction)
    ((base, _),) = bound.intervals(pairs, length, last=True).feasible
    return base


@pytest.mark.parametrize("length, head_dim", [(300, 32), (512, 128)])
def test_intervals_are_those_of_a_grid(length, head_dim):
    """A grid decides nothing, but may not contradict: 2,000 bases from 0.8 b* on."""
    high = bound.smallest_base(length, head_dim).high
    intervals = bound.intervals(bound.pairs_of(head_dim), length, high)
    lows, highs = np.array(intervals.feasible).T
    assert lows[0] == high and highs[-1] == np.inf
    assert np.all(lows[1:] > highs[:-1]) and np.all(highs > lows)
    bases = np.geomspace(0.8 * high, 2 * lows[-1], 2000)
    inside = np.array([((lows <= b) & (b <= highs)).any() for b in bases])
    assert inside.any() and not inside.all()
    values = direct(bases, length, head_dim)
    assert values[inside].min() > 0
    assert values[~inside].max() < 0
    # The ends are sharp.
    gaps = np.log(lows[1:] / highs[:-1])
    assert direct(lows[1:] * np.exp(-np.minimum(gaps / 2, 1e-7)), length, head_dim).max() < 0
    assert lows[-1] == pytest.approx(stable(length, head_dim), rel=1e-8)
    # Each interval that is infeasible names its witness, and nothing is left out.
    for left, right, m in intervals.infeasible[::3]:
        for x in (left, (left + right) / 2, right):
            assert 0 < m < length and exact(x, m, head_dim) < 0
    covered = sum(right - left for left, right, _ in intervals.infeasible)
    covered += np.log(highs[:-1] / lows[:-1]).sum()
    assert covered == pytest.approx(math.log(lows[-1] / high), abs=1e-7)


# --- heads and layers -------------------------------------------------------------------------


def test_lengths_by_layer_and_head():
    """Local, global and unrotated heads; the largest length counts."""
    local, far = (rotary.parse(f"rope(base={base})").inv_freq(64) for base in (100, 10_000))
    layers = np.array([[local, local], [local, far], [np.zeros(32), far]])
    assert decay.violations(layers, 2**20) == [[46, 46], [46, 725], [None, 725]]
    assert decay.violations(layers[1:2], 725) == [[46, None]]
    assert predict(layers[:2]).first_violation == 725
    assert predict(layers[:2]).full_period == pytest.approx(47_117, abs=1)
    assert predict(layers).first_violation is None


# --- bad input ----------------------------------------------------------------------------------


def test_undecided_answers_raise():
    """Two pairs: cos 355 is -1 + 5e-10, so B_355 approaches zero."""
    with pytest.raises(ArithmeticError, match="float64 cannot decide"):
        bound.smallest_base(400, 4)


# --- errors ------------------------------------------------------------------------------------


def test_error_bounds_hold():
    """The error bounds cover the difference to fifty digits."""
    rng = np.random.default_rng(0)
    pairs = bound.pairs_of(128)
    for length in (10**3, 10**6, 2**31):
        m = rng.integers(1, length, 6)
        x = rng.uniform(0.1, 25, 6)
        taylor = bound._Taylor(pairs, x, m)
        for k in range(6):
            with mpmath.workdps(50):
                s = [mpmath.mpf(i) / 64 for i in range(64)]
                angles = [int(m[k]) * mpmath.exp(-si * mpmath.mpf(x[k])) for si in s]
                value = mpmath.fsum(map(mpmath.cos, angles))
                rate = mpmath.fsum(si * a * mpmath.sin(a) for si, a in zip(s, angles, strict=True))
                second = mpmath.fsum(
                    -(si**2) * (a * mpmath.sin(a) + a * a * mpmath.cos(a))
                    for si, a in zip(s, angles, strict=True)
                )
            assert abs(value - taylor.value[k]) < taylor.value_error[k]
            assert abs(rate - taylor.rate[k]) < taylor.rate_error[k]
            assert abs(second) < taylor.curvature[k]
