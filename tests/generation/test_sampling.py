"""What is drawn, beside a softmax in float64 cut off by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generation.sampling import Draws, Sampler, choose

LOGITS = np.array([1.0, 3.0, -2.0, 2.5, 0.0, 3.5, -30.0, 1.5])
COUNT = 40_000


def by_hand(temperature: float, top_k: int | None, top_p: float | None) -> np.ndarray:
    """Probabilities: the likeliest first, as many as there may be, until their sum is reached."""
    weights = np.exp(LOGITS / temperature)
    order = np.argsort(-weights)[: top_k or len(LOGITS)]
    kept, total = [], 0.0
    for i in order:
        kept.append(i)
        total += weights[i] / weights[order].sum()
        if top_p is not None and total >= top_p:
            break
    found = np.zeros(len(LOGITS))
    found[kept] = weights[kept] / weights[kept].sum()
    return found


def drawn(temperature=1.0, top_k=None, top_p=None, seed=0) -> np.ndarray:
    sampler = Sampler(temperature == 0, top_k, top_p is not None)
    keys = jax.random.split(jax.random.key(seed), COUNT)
    draws = Draws(keys, jnp.float32(temperature or 1), jnp.float32(top_p or 1))
    logits_BV = jnp.tile(jnp.asarray(LOGITS, jnp.float32), (COUNT, 1))
    return np.asarray(choose(sampler, draws, logits_BV, jnp.arange(COUNT)))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [
        (1.0, None, None),
        (0.5, None, None),
        (2.0, 3, None),
        (1.0, 100, None),
        (1.0, None, 0.9),
        (1.0, None, 0.2),
        (1.0, None, 1.0),
        (1.5, 4, 0.8),
    ],
)
def test_ids_come_as_often_as_they_must(temperature, top_k, top_p):
    expected = by_hand(temperature, top_k, top_p)
    found = np.bincount(drawn(temperature, top_k, top_p), minlength=len(LOGITS)) / COUNT
    assert (found[expected == 0] == 0).all()
    error = np.sqrt(expected * (1 - expected) / COUNT)
    assert (np.abs(found - expected) <= 4 * error + 1e-9).all()


def test_of_equals_the_lower_id():
    logits_BV = jnp.array([[0.0, 2.0, 2.0, 1.0]])
    draws = Draws(jax.random.split(jax.random.key(0), 1), jnp.float32(1), jnp.float32(1))
    position = jnp.zeros(1, jnp.int32)
    assert choose(Sampler(True, None, False), draws, logits_BV, position).tolist() == [1]
    assert choose(Sampler(False, 1, False), draws, logits_BV, position).tolist() == [1]


def test_a_place_in_a_row_has_a_chance_of_its_own():
    keys = jnp.broadcast_to(jax.random.key(1), (COUNT,))
    draws = Draws(keys, jnp.float32(1), jnp.float32(1))
    logits_BV = jnp.zeros((COUNT, 4))
    found = choose(Sampler(False, None, False), draws, logits_BV, jnp.arange(COUNT))
    assert np.abs(np.bincount(found) / COUNT - 0.25).max() < 0.01
