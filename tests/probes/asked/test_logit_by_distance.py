"""Queries and keys made by hand, whose mean logit by distance has a closed form."""

import math

import numpy as np
import pytest

from probes.asked.logit_by_distance import LogitByDistance, logit_by_distance
from tests.probes.helpers import holding

B, T, N, R = 20, 48, 2, 4
INV_FREQ_R = 10 ** (-np.arange(R) / R)
SCALE = 1 / math.sqrt(2 * R)


def noise() -> np.ndarray:
    real, imaginary = np.random.default_rng(0).normal(size=(2, 2, B, T, N, R))
    return real + 1j * imaginary


def found(z_R: np.ndarray, spread: float = 0.0, **options) -> LogitByDistance:
    """Of queries that are all 1 and keys that are conj(z), with noise on both."""
    q_BTNR, k_BTNR = spread * noise()
    given = dict(rotary="rope(base=10)") | options
    return logit_by_distance(holding(1 + q_BTNR, np.conj(z_R) + k_BTNR, **given))


@pytest.mark.parametrize("r", [3, 17])
def test_keys_that_are_turned_queries_are_highest_at_that_distance(r):
    by = found(np.exp(-1j * r * INV_FREQ_R))
    assert np.nanargmax(by.mean_LNM, axis=-1).tolist() == [[r, r]]
    np.testing.assert_allclose(by.mean_LNM[..., r], R * SCALE, rtol=1e-5)


def test_content_that_is_everywhere_alike_is_the_series():
    z_R = np.array([1, 0.5j, -0.3, 0.2 - 0.4j])
    by = found(z_R)
    np.testing.assert_allclose(by.series_LNM, by.mean_LNM, atol=1e-5)
    expected_M = (z_R * np.exp(1j * by.distances_M[:, None] * INV_FREQ_R)).real.sum(axis=1) * SCALE
    np.testing.assert_allclose(by.mean_LNM[0, 0], expected_M, atol=1e-5)
    np.testing.assert_allclose(by.cosine_LNR[0, 1], z_R.real * SCALE, atol=1e-6)
    np.testing.assert_allclose(by.sine_LNR[0, 1], -z_R.imag * SCALE, atol=1e-6)
    assert np.abs(by.spread_LNM).max() < 1e-2 and np.abs(by.spread_LNR).max() < 1e-3


def test_noise_is_zero_at_every_distance():
    """The spread is sqrt(2 R) for each product of two complex normal numbers, over sqrt(H)."""
    q_BTNR, k_BTNR = noise()
    by = logit_by_distance(holding(q_BTNR, k_BTNR, "rope(base=10)"))
    near = by.distances_M < T // 2  # where many positions are averaged
    covered = (by.mean_low_LNM <= 0) & (by.mean_high_LNM >= 0)
    assert covered[..., near].mean() > 0.85
    np.testing.assert_allclose(by.spread_LNM[..., near], math.sqrt(2 * R) * SCALE, rtol=0.15)
    np.testing.assert_allclose(by.spread_LNR, 2 * SCALE, rtol=0.1)
    assert by.explained.max() < 0.02


def test_distance_explains_what_varies_between_distances():
    """One pair at 1 and noise: half of the squared cosine, beside what the noise spreads."""
    by = found(np.eye(R)[0] * 2, spread=0.5, rotary="rope(base=10)")
    between = np.var(2 * np.cos(by.distances_M)) * SCALE**2
    # q k = (1 + n) (z + n'): z n and n' in the pair that is 1, n' in the others, n n' in all.
    within = (4 * 0.25 + R * 0.25 + R * 2 * 0.25**2) * SCALE**2
    np.testing.assert_allclose(by.explained, between / (between + within), rtol=0.1)


def test_what_a_window_hides_is_not_counted():
    by = found(np.ones(R), window=5)
    assert np.isfinite(by.mean_LNM[..., :5]).all() and np.isnan(by.mean_LNM[..., 5:]).all()
