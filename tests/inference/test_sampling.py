"""Samples against probabilities in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.evals.generation.sampling import Draws, Sampler, choose

LOGITS = np.array([1.0, 3.0, -2.0, 2.5, 0.0, 3.5, -30.0, 1.5])
COUNT = 40_000


def reference(temperature: float, top_k: int | None, top_p: float | None) -> np.ndarray:
    """Return probabilities of up to `top_k` ids, most likely first, until they reach `top_p`."""
    weights = np.exp(LOGITS / temperature)
    order = np.argsort(-weights)[: top_k or len(LOGITS)]
    before = np.cumsum(weights[order]) - weights[order]
    ids = order[before < (top_p or np.inf) * weights[order].sum()]
    probabilities = np.zeros(len(LOGITS))
    probabilities[ids] = weights[ids] / weights[ids].sum()
    return probabilities


def sample(temperature=1.0, top_k=None, top_p=None) -> np.ndarray:
    sampler = Sampler(temperature == 0, top_k, top_p is not None)
    keys = jax.random.split(jax.random.key(0), COUNT)
    draws = Draws(keys, jnp.float32(temperature or 1), jnp.float32(top_p or 1))
    logits_BV = jnp.tile(jnp.asarray(LOGITS, jnp.float32), (COUNT, 1))
    return np.asarray(choose(sampler, draws, logits_BV, jnp.arange(COUNT)))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.5, None, None), (1.0, 100, 0.2), (1.5, 4, 0.8)]
)
def test_sample_frequencies_equal_probabilities(temperature, top_k, top_p):
    expected = reference(temperature, top_k, top_p)
    frequency = np.bincount(sample(temperature, top_k, top_p), minlength=len(LOGITS)) / COUNT
    assert (frequency[expected == 0] == 0).all()
    error = np.sqrt(expected * (1 - expected) / COUNT)
    assert (np.abs(frequency - expected) <= 4 * error + 1e-9).all()


def test_lowest_id_among_equal_logits():
    logits_BV, position = jnp.array([[0.0, 2.0, 2.0, 1.0]]), jnp.zeros(1, jnp.int32)
    draws = Draws(jax.random.split(jax.random.key(0), 1), jnp.float32(1), jnp.float32(1))
    for sampler in (Sampler(True, None, False), Sampler(False, 1, False)):
        assert choose(sampler, draws, logits_BV, position).tolist() == [1]


def test_positions_draw_independently():
    keys = jnp.broadcast_to(jax.random.key(1), (COUNT,))
    draws = Draws(keys, jnp.float32(1), jnp.float32(1))
    logits_BV = jnp.zeros((COUNT, 4))
    frequency = choose(Sampler(False, None, False), draws, logits_BV, jnp.arange(COUNT))
    assert np.abs(np.bincount(frequency) / COUNT - 0.25).max() < 0.01
