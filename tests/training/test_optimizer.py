"""The optimizer against AdamW written out in float64, and schedules against hand-made values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.experiment.config import TrainConfig
from ropewalk.experiment.schedule import learning_rate_fraction
from ropewalk.training import optimizer


def test_one_member_update_equals_adamw_written_out():
    config = TrainConfig(
        num_steps=10, learning_rate=0.1, weight_decay=0.1, beta1=0.9, beta2=0.95, clip_norm=1.0
    )
    # Biases are written head by head, and are vectors all the same.
    params = {
        "blocks": {"scale": jnp.full((2, 3), 2.0), "query_bias": jnp.full((2, 2, 3), 2.0)},
        "embedding": jnp.full((2, 2), -3.0),
    }
    gradient = {
        "blocks": {"scale": jnp.full((2, 3), 3.0), "query_bias": jnp.zeros((2, 2, 3))},
        "embedding": jnp.full((2, 2), 4.0),
    }
    direction = optimizer.make_optimizer(config)
    state = direction.init(params)
    compute_update = jax.jit(direction.update)
    update, state = compute_update(gradient, state, params)
    update, _ = compute_update(gradient, state, params)
    # Global norm sqrt(6 * 9 + 4 * 16) = sqrt(118) > 1, so gradients shrink by it; both steps have
    # the same gradient, so the bias-corrected moments are g and g^2.
    norm = np.sqrt(118.0)
    scale_update = (3 / norm) / (3 / norm + 1e-8)
    embedding_update = (4 / norm) / (4 / norm + 1e-8) + 0.1 * -3.0  # matrices decay
    np.testing.assert_allclose(update["blocks"]["scale"], scale_update, rtol=1e-5)
    np.testing.assert_array_equal(update["blocks"]["query_bias"], 0)
    np.testing.assert_allclose(update["embedding"], embedding_update, rtol=1e-5)


def test_frozen_parameters_neither_change_nor_count_in_the_norm():
    config = TrainConfig(
        num_steps=10, learning_rate=0.1, clip_norm=1.0, epsilon=1.0, frozen=("attention.key",)
    )
    params, gradient = (
        {"blocks": {"attention": {name: jnp.full((1, 2, 1), x) for name, x in values.items()}}}
        for values in (dict(key=1.0, query=1.0), dict(key=4e3, query=3.0))
    )
    direction = optimizer.make_optimizer(config)
    update, _ = jax.jit(direction.update)(gradient, direction.init(params), params)
    np.testing.assert_array_equal(update["blocks"]["attention"]["key"], 0)
    # The norm is that of the query alone, 3 sqrt(2); epsilon is too large to hide it.
    clipped = 1 / np.sqrt(2)
    expected = clipped / (clipped + 1) + config.weight_decay
    np.testing.assert_allclose(update["blocks"]["attention"]["query"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("schedule", "step", "fraction"),
    [
        ("cosine", 0, 1 / 11),  # linear warmup over 10 steps starts above zero
        ("cosine", 10, 1.0),
        ("cosine", 60, 0.55),  # half-way: the mean of 1 and 0.1
        ("cosine", 110, 0.1),
        ("constant", 109, 1.0),
        ("wsd", 50, 1.0),
        ("wsd", 88, 1.0),  # decays over the last fifth: 22 steps from 88
        ("wsd", 99, 0.55),
        ("wsd", 110, 0.1),
    ],
)
def test_schedules_at_hand_made_points(schedule, step, fraction):
    config = TrainConfig(
        num_steps=110, warmup_steps=10, learning_rate=1.0, schedule=schedule, final_fraction=0.1
    )
    assert float(jax.jit(learning_rate_fraction, static_argnums=0)(config, step)) == (
        pytest.approx(fraction, abs=1e-6)
    )
