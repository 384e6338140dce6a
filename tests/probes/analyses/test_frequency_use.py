"""Synthetic queries and keys with a known contribution of each pair."""

import dataclasses
import math

import numpy as np
import pytest

from ropewalk.probes.analyses.frequency_use import FrequencyUse
from tests.probes.helpers import make_capture, make_subject, plant_keys

T, N, R = 48, 2, 4
INV_FREQ_R = 10 ** (-np.arange(R) / R)
SCALE = 1 / math.sqrt(2 * R)


def measure_planted(z_R, **options) -> FrequencyUse:
    return FrequencyUse.measure(make_subject(*plant_keys((100, T, N, R), z_R, **options)))


@pytest.mark.parametrize("pair", range(R))
def test_the_planted_pair_has_all_of_the_gap(pair):
    result = measure_planted(np.eye(R)[pair] * (3 + 4j))
    assert (result.amplitude_3LNR[0].argmax(axis=-1) == pair).all()
    expected_LNR = np.broadcast_to(5 * SCALE * np.eye(R)[pair], (1, N, R))
    np.testing.assert_allclose(result.amplitude_3LNR[0], expected_LNR, atol=1e-5)
    # Its share is 1 at every distance, with the sign of Re (3 + 4i) exp(i m inv_freq).
    sign_M = np.sign(((3 + 4j) * np.exp(1j * result.distances_M * INV_FREQ_R[pair])).real)
    np.testing.assert_allclose(result.share((0, 1))[pair], sign_M, atol=1e-5)
    np.testing.assert_allclose(result.half_gain_3, 2 * math.pi / INV_FREQ_R[pair])


def test_shares_are_relative_to_the_sum_of_absolute_terms():
    result = measure_planted(np.array([1, -1, 2j, 0]))
    turns_RM = np.exp(1j * np.outer(INV_FREQ_R, result.distances_M))
    terms_RM = (np.array([1, -1, 2j, 0])[:, None] * turns_RM).real
    np.testing.assert_allclose(
        result.share((0, 0)), terms_RM / np.abs(terms_RM).sum(axis=0), atol=1e-4
    )


def test_massive_features_count_once_per_key_head():
    """Two query heads share each of two keys, of which feature 0 is 100 times the others."""
    q_BTNR, k_BTNR = np.ones((2, 10, T, 4, R), complex)
    k_BTNR[..., 0] = 100 + 1j
    captured, questions = plant_keys((10, T, 4, R), np.ones(R))
    captured = make_capture(q_BTNR, k_BTNR, "nope")
    activations = captured.activations
    captured = dataclasses.replace(
        captured,
        config=dataclasses.replace(captured.config, num_kv_heads=2),
        activations=activations._replace(k_LBSKH=activations.k_LBSKH[..., ::2, :]),
    )
    result = FrequencyUse.measure(make_subject(captured, questions))
    assert result.numbers()["massive features of queries and keys"].value == 2
    assert [line["massive features"] for line in result.lines()] == ["0 of queries, 1 of keys"] * 4


def test_unrotated_pairs_have_no_period():
    """p-RoPE does not rotate the slower two of four pairs."""
    result = measure_planted(np.array([0, 0, 2, 1]), rotary="p_rope(base=10,rotary_fraction=0.5)")
    share_RM = result.share((0, 0))
    np.testing.assert_allclose(share_RM[:, :1] - share_RM, 0, atol=1e-6)
    assert np.isinf(result.half_gain_3).all()


def test_shares_end_at_the_window():
    """With a window of 9 tokens, a query attends to the 8 tokens before it."""
    share_RM = measure_planted(np.ones(R), window=9).share((0, 0))
    assert np.isfinite(share_RM[:, :8]).all() and np.isnan(share_RM[:, 8:]).all()
