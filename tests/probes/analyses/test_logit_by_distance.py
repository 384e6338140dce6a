"""Synthetic queries and keys whose mean logit by distance has a closed form."""

import math

import numpy as np

from ropewalk.probes.analyses.logit_by_distance import LogitByDistance
from tests.probes.helpers import make_capture, make_subject

B, T, N, R = 20, 48, 2, 4
INV_FREQ_R = 10 ** (-np.arange(R) / R)
SCALE = 1 / math.sqrt(2 * R)


def noise() -> np.ndarray:
    real, imaginary = np.random.default_rng(0).normal(size=(2, 2, B, T, N, R))
    return real + 1j * imaginary


def measure(z_R: np.ndarray, spread: float = 0.0, **options) -> LogitByDistance:
    """Measure queries of 1 and keys of conj(z), with noise on both."""
    q_BTNR, k_BTNR = spread * noise()
    options = dict(rotary="rope(base=10)") | options
    captured = make_capture(1 + q_BTNR, np.conj(z_R) + k_BTNR, **options)
    return LogitByDistance.measure(make_subject(captured))


def test_the_means_of_constant_content_are_the_series():
    z_R = np.array([1, 0.5j, -0.3, 0.2 - 0.4j])
    result = measure(z_R)
    np.testing.assert_allclose(result.series_LNM, result.mean_LNM, atol=1e-5)
    turned_MR = z_R * np.exp(1j * result.distances_M[:, None] * INV_FREQ_R)
    expected_M = SCALE * turned_MR.real.sum(axis=1)
    np.testing.assert_allclose(result.mean_LNM[0, 0], expected_M, atol=1e-5)
    np.testing.assert_allclose(result.cosine_LNR[0, 1], z_R.real * SCALE, atol=1e-6)
    np.testing.assert_allclose(result.sine_LNR[0, 1], -z_R.imag * SCALE, atol=1e-6)
    assert np.abs(result.spread_LNM).max() < 1e-2 and np.abs(result.spread_LNR).max() < 1e-3


def test_noise_is_zero_at_every_distance():
    """The spread of R products of two complex normal numbers is sqrt(2 R), over sqrt(H)."""
    q_BTNR, k_BTNR = noise()
    subject = make_subject(make_capture(q_BTNR, k_BTNR, "rope(base=10)"))
    result = LogitByDistance.measure(subject)
    near = result.distances_M < T // 2  # where many positions are averaged
    covered = (result.mean_low_LNM <= 0) & (result.mean_high_LNM >= 0)
    assert covered[..., near].mean() > 0.85
    np.testing.assert_allclose(result.spread_LNM[..., near], math.sqrt(2 * R) * SCALE, rtol=0.15)
    np.testing.assert_allclose(result.spread_LNR, 2 * SCALE, rtol=0.1)
    assert result.explained.max() < 0.02


def test_masked_distances_are_nan():
    result = measure(np.ones(R), window=5)
    assert np.isfinite(result.mean_LNM[..., :5]).all() and np.isnan(result.mean_LNM[..., 5:]).all()
