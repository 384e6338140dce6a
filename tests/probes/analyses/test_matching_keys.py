"""Synthetic queries and keys with a known gap of the matching key at each distance."""

import math

import numpy as np
import pytest

from ropewalk.probes.analyses.matching_keys import MatchingKeys
from ropewalk.probes.capturing import Capture
from ropewalk.probes.questions import Questions
from tests.probes.helpers import make_capture, make_subject, plant_keys

B, R = 200, 8
SHAPE = B, 64, 2, R


def measure(captured: Capture, questions: Questions) -> MatchingKeys:
    return MatchingKeys.measure(make_subject(captured, questions, np.ones(B, bool)))


def inv_freq(base: float = 10) -> np.ndarray:
    return base ** (-np.arange(R) / R)


def measure_planted(z_R: np.ndarray, noise: float, rotary: str = "rope(base=10)") -> MatchingKeys:
    return measure(*plant_keys(SHAPE, z_R, noise=noise, rotary=rotary))


@pytest.mark.parametrize("r", [3, 17])
def test_rotated_queries_as_keys_match_best_at_that_distance(r):
    result = measure_planted(np.exp(-1j * r * inv_freq()), noise=0)
    assert result.distances_M[result.gap_LNM[0].argmax(axis=-1)].tolist() == [r, r]
    # All pairs in step: q . k = R, over sqrt(2 R).
    np.testing.assert_allclose(result.gap_LNM.max(), R / math.sqrt(2 * R), rtol=1e-5)


@pytest.mark.parametrize("pair", [2, 5, 7])
def test_the_gap_of_one_pair_ends_at_a_quarter_period(pair):
    result = measure_planted(np.eye(R)[pair], noise=0)
    np.testing.assert_allclose(result.zero_LN, math.pi / 2 / inv_freq()[pair], rtol=2e-3)


def test_the_gap_of_unrotated_pairs_is_constant():
    result = measure_planted(np.ones(R), noise=0, rotary="nope")
    np.testing.assert_allclose(result.gap_LNM, R / math.sqrt(2 * R), rtol=1e-5)
    assert np.isinf(result.zero_LN).all()


def test_the_gap_ends_at_the_window():
    """A window of 21 tokens includes the query's, so the farthest key is at distance 20."""
    result = measure(*plant_keys(SHAPE, np.ones(R), noise=0.1, rotary="nope", window=21))
    assert result.zero_LN.tolist() == [[21.0, 21.0]]
    assert result.alone(0, 0) == [(1, 20)]


def test_keys_outside_the_window_do_not_compete():
    """Values at 1, 10 and 12; the answers to the questions at 13 and 30 are at 12 and 10."""
    is_value_BT = np.isin(np.arange(40), [1, 10, 12])[None]
    questions = Questions(np.zeros(2, int), np.array([13, 30]), np.array([12, 10]), is_value_BT)
    captured = make_capture(np.ones((1, 40, 1, R)), np.ones((1, 40, 1, R)), "nope", window=5)
    result = MatchingKeys.measure(make_subject(captured, questions, np.ones(2, bool)))
    assert result.num_others_L.tolist() == [1]  # without a window (2 + 2) / 2


def test_intervals_of_zeros_cover_them():
    quarter = math.pi / 2 / inv_freq()[7]
    result = measure_planted(np.eye(R)[7], noise=0.5)
    assert (result.zero_low_LN < quarter).all() and (result.zero_high_LN > quarter).all()
    assert (result.zero_high_LN - result.zero_low_LN < quarter).all()
