"""Numbers of `theory positions`, against closed forms, 50 digits and plain loops."""

import functools
import json
import math

import mpmath
import numpy as np
import pytest

from ropewalk.theory.positions import tell_apart
from tests.in_process import call
from tests.theory.test_capability import hull_distance

theory = functools.partial(call, "-m", "theory")


def powers(base, dim):
    """Return the geometric series, independently of the code under test."""
    return [base ** (-2 * i / dim) for i in range(dim // 2)]


@pytest.mark.parametrize("base, dim, apart", [(10, 64, 1), (1e4, 128, 7), (1e6, 64, 100)])
def test_the_step_is_the_mean_square_change_of_a_score(base, dim, apart):
    """The mean over four phases a quarter turn apart is that over all phases, at any distance."""
    omegas, at = powers(base, dim), 17
    phases = [quarter * math.pi / 2 + 0.3 for quarter in range(4)]
    change = sum(
        (math.cos((at + apart) * omega + phase) - math.cos(at * omega + phase)) ** 2 / 4
        for omega in omegas
        for phase in phases
    )
    step = tell_apart(np.array(omegas), 200, apart).step
    assert step == pytest.approx(change, rel=1e-12)
    with mpmath.workdps(50):
        exact = mpmath.fsum(1 - mpmath.cos(apart * mpmath.mpf(omega)) for omega in omegas)
    assert abs(exact - step) < 1e-12


def test_a_larger_base_tells_positions_apart_worse_down_to_its_limit():
    steps = [tell_apart(np.array(powers(base, 64)), 125).step for base in (10, 1e2, 1e4, 1e6)]
    assert steps == sorted(steps, reverse=True)
    last = tell_apart(np.array(powers(1e300, 64)), 125, 2)
    assert last.step == pytest.approx(1 - math.cos(2)) == last.limit
    # cos m alone: half of all distances are inversions, and no weights order more than π tokens.
    assert last.inversions == sum(math.cos(m + 2) > math.cos(m) for m in range(1, 124))
    assert last.separation < 1e-5 < tell_apart(np.array(powers(1e6, 64)), 125, 2).separation


@pytest.mark.parametrize("base, apart", [(10, 1), (100, 1), (100, 8), (1e6, 3)])
def test_inversions_are_those_of_fifty_digits(base, apart):
    omegas = powers(base, 64)
    with mpmath.workdps(50):
        sums = [mpmath.fsum(mpmath.cos(m * mpmath.mpf(w)) for w in omegas) for m in range(1, 101)]
    found = tell_apart(np.array(omegas), 100, apart)
    assert found.inversions == sum(b > a for a, b in zip(sums, sums[apart:], strict=False))
    assert (found.undecided, found.distances) == (0, 100 - apart)


@pytest.mark.parametrize("apart, length", [(1, 2), (1, 20), (5, 31)])
def test_one_pair_has_the_closed_form(apart, length):
    """Changes have length 2 sin(δω/2); M - δ of them lie on an arc of (M - δ - 1) ω."""
    omega = 0.1
    expected = 2 * math.sin(apart * omega / 2) * math.cos((length - apart - 1) * omega / 2)
    found = tell_apart(np.array([omega]), length, apart)
    assert found.separation == pytest.approx(math.sqrt(2) * expected)
    assert found.certificate == pytest.approx(found.separation, abs=1e-9)
    assert tell_apart(np.array([omega]), 40 + apart, apart).separation == 0


def test_the_separation_is_that_of_another_solver():
    omegas, distances = powers(30, 8), np.arange(1, 13)
    waves = np.exp(1j * np.outer(distances, omegas))
    expected = hull_distance((waves[:-3] - waves[3:]).view(float))
    found = tell_apart(np.array(omegas), 12, 3)
    assert found.separation == pytest.approx(math.sqrt(2) * expected, abs=1e-6)


def test_pairs_that_do_not_rotate_tell_no_positions_apart():
    turning = np.array(powers(100, 32))
    partial, whole = tell_apart(np.append(turning, np.zeros(16)), 60), tell_apart(turning, 60)
    assert partial[2:5] == whole[2:5]
    assert partial == pytest.approx(whole, abs=1e-9)
    still = tell_apart(np.zeros(16), 60)
    assert still == (0, 0, 0, 59, 59, 0, 0)  # every distance is undecided: all B_m are equal


def test_positions_of_layers_and_heads():
    command = "positions", "--head-dim", "64", "--length", "125", "--apart", "8"
    result = json.loads(theory(*command, "--base", "100", "--json"))
    facts = ["step", "limit", "inversions", "undecided", "distances", "separation", "certificate"]
    assert list(result) == ["rotary", "head_dim", "length", "apart", *facts]
    lines = theory(*command, "--rotary", "[rope(base=100),nope]").splitlines()
    assert lines[0].startswith(f"layer 0: step {result['step']:.6g} (1.1455 as the base grows), ")
    assert lines[1].startswith("layer 1: step 0 (0 as the base grows), inversions at 0 of 117 ")
    mixed = json.loads(theory(*command, "--rotary", "[[nope,rope(base=100)]]", "--json"))
    assert mixed["heads"][0][1]["separation"] == mixed["separation"] == result["separation"]
    assert "apart=8 and length=8 tokens are not allowed" in theory(
        *command[:4], "8", *command[5:], "--base", "100", status=2
    )
