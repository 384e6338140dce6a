"""Queries and keys made by hand, of which it is known what a matching key gains at a distance."""

import math

import numpy as np
import pytest

from probes.asked.matching_keys import MatchingKeys, matching_keys
from probes.inside import Capture
from probes.questions import Questions
from tests.probes.helpers import holding
from theory import capability

B, T, N, R, P = 200, 64, 2, 8, 9


def planted(
    z_R: np.ndarray, noise: float, rotary: str = "rope(base=10)", window: int | None = None
) -> tuple[Capture, Questions]:
    """One question a row: queries are 1 in every pair; the key that matches has q conj(k) = z."""
    random = np.random.default_rng(0)
    places = np.stack([random.permutation(np.arange(1, T - 1))[:P] for _ in range(B)])
    key_Q = places[:, 0]
    query_Q = random.integers(key_Q + 1, T)
    k_BSNR = noise * (random.normal(size=(B, T, N, R)) + 1j * random.normal(size=(B, T, N, R)))
    k_BSNR[np.arange(B), key_Q] += np.conj(z_R)
    inside = holding(np.ones((B, T, N, R)), k_BSNR, rotary, window)
    return inside, Questions(np.arange(B), query_Q, key_Q, np.sort(places, axis=1))


def looked(inside: Capture, questions: Questions) -> MatchingKeys:
    return matching_keys(inside, questions, np.ones(B, bool))


def inv_freq(base: float = 10) -> np.ndarray:
    return base ** (-np.arange(R) / R)


def probed(z_R: np.ndarray, noise: float, rotary: str = "rope(base=10)") -> MatchingKeys:
    return looked(*planted(z_R, noise, rotary))


@pytest.mark.parametrize("r", [3, 17])
def test_keys_that_are_turned_queries_match_best_at_that_distance(r):
    found = probed(np.exp(-1j * r * inv_freq()), noise=0)
    assert found.distances_M[found.gap_LNM[0].argmax(axis=-1)].tolist() == [r, r]
    # All pairs in step: q . k = R, over sqrt(2 R).
    np.testing.assert_allclose(found.gap_LNM.max(), R / math.sqrt(2 * R), rtol=1e-5)


@pytest.mark.parametrize("pair", [2, 5, 7])
def test_one_aligned_pair_gains_nothing_from_a_quarter_period_on(pair):
    found = probed(np.eye(R)[pair], noise=0)
    np.testing.assert_allclose(found.zero_LN, math.pi / 2 / inv_freq()[pair], rtol=2e-3)


def test_equal_aligned_pairs_give_the_bound():
    """B(m) = sum_i cos(m inv_freq_i)."""
    found = probed(np.ones(R), noise=0)
    bound_M = np.cos(found.distances_M[:, None] * inv_freq()).sum(axis=1)
    np.testing.assert_allclose(found.gap_LNM[0, 0], bound_M / math.sqrt(2 * R), atol=1e-5)
    assert found.zero_LN[0, 0] == pytest.approx(np.flatnonzero(bound_M <= 0)[0] + 0.5, abs=0.5)


def test_unrotated_pairs_gain_the_same_everywhere():
    found = probed(np.ones(R), noise=0, rotary="nope")
    np.testing.assert_allclose(found.gap_LNM, R / math.sqrt(2 * R), rtol=1e-5)
    assert np.isinf(found.zero_LN).all()


def test_a_window_ends_every_advantage():
    """21 tokens, the query's own included: at distance 20 it sees a key, at 21 none."""
    found = looked(*planted(np.ones(R), noise=0.1, rotary="nope", window=21))
    assert found.zero_LN.tolist() == [[21.0, 21.0]]
    assert found.alone(0, 0) == [(1, 20)]


def test_noise_gains_nothing_at_any_distance():
    found = probed(np.zeros(R), noise=1.0)
    covered = (found.gap_low_LNM <= 0) & (found.gap_high_LNM >= 0)
    assert covered.mean() > 0.8  # distances are not independent of each other
    assert np.abs(found.gap_LNM).max() < 4 * math.sqrt(2 * R / B) / math.sqrt(2 * R)


def test_zero_has_an_interval_that_covers_it():
    quarter = math.pi / 2 / inv_freq()[7]
    found = probed(np.eye(R)[7], noise=0.5)
    assert (found.zero_low_LN < quarter).all() and (found.zero_high_LN > quarter).all()
    assert (found.zero_high_LN - found.zero_low_LN < quarter).all()


def test_accuracy_is_how_often_the_match_is_on_top():
    inside, questions = planted(1.2 * np.ones(R), noise=1.0, rotary="nope")
    found = looked(inside, questions)
    # Counted: the logits themselves, of the match and of the others before the query.
    logits_BNTS = np.concatenate([np.asarray(part) for _, part in inside.chunks(0)], axis=2)
    right = []
    for row, (t, s) in enumerate(zip(questions.query_Q, questions.key_Q, strict=True)):
        others = questions.pairs_BP[row][questions.others()[row]]
        own_N = logits_BNTS[row, :, t, s]
        if len(others) == round(found.num_others):
            right.append(own_N > logits_BNTS[row, :, t, others].max(axis=0))
    d_prime = found.d_prime[0, :, 0]
    assert d_prime == pytest.approx(1.2 * R / math.sqrt(R), rel=0.1)
    assert abs(np.mean(right) - found.accuracy[0, :, 0].mean()) < 0.08


def test_a_window_filter_is_recognised():
    best_W = capability.nearest_point(capability.responses(inv_freq(), np.arange(1, 15)))
    found = probed(3 * (best_W[:R] + 1j * best_W[R:]), noise=0)
    length, cosine = found.window(0, 1)
    assert abs(length - 14) <= 1 and cosine > 0.999
