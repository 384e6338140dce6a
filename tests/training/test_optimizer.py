"""The optimizer against AdamW written out in float64, and schedules against hand-made values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropewalk.experiment.config import TrainConfig
from ropewalk.experiment.schedule import learning_rate_fraction
from ropewalk.training import optimizer


def test_one_member_update_equals_adamw_written_out():
    config = TrainConfig(num_steps=10, learning_rate=0.1, weight_decay=0.1, clip_norm=1.0)
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
    update, _ = compute_update(jax.tree.map(jnp.zeros_like, gradient), state, params)
    # Global norm sqrt(6 * 9 + 4 * 16) = sqrt(118) > 1, so gradients g shrink by it; with the second
    # gradient 0, the bias-corrected moments are .9 x .1 g / (1 - .9^2) and .95 x .05 g^2 / (1 -
    # .95^2), with the default betas.
    norm = np.sqrt(118.0)
    first, second = 0.09 / 0.19, np.sqrt(0.0475 / 0.0975)
    scale_update = first * 3 / norm / (second * 3 / norm + 1e-8)
    embedding_update = first * 4 / norm / (second * 4 / norm + 1e-8) + 0.1 * -3.0  # matrices decay
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


def test_muon_orthogonalizes_every_matrix_of_every_layer():
    """Singular values of a first update, by numpy: .2 sqrt(max of both sides) times .68 to 1.14.

    Heads are one side of a projection. The rest gets AdamW's update with Nesterov's momentum.
    """
    config = TrainConfig(num_steps=10, learning_rate=0.1, weight_decay=0.0, optimizer="muon")
    random = np.random.default_rng(0)
    shapes = {"query": (2, 12, 2, 4), "out": (2, 2, 4, 12), "down": (2, 24, 12), "scale": (2, 12)}
    shapes |= {"query_bias": (2, 2, 4)}
    params = {"blocks": {name: random.normal(size=shape) for name, shape in shapes.items()}}
    params["embedding"] = random.normal(size=(20, 12))
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    direction = optimizer.make_optimizer(config)
    update, _ = jax.jit(direction.update)(params, direction.init(params), params)
    blocks = jax.device_get(update["blocks"])
    for name, sides in {"query": (12, 8), "out": (8, 12), "down": (24, 12)}.items():
        values = np.linalg.svd(blocks[name].reshape(2, *sides), compute_uv=False)
        values /= 0.2 * np.sqrt(max(sides))
        assert values.min() > 0.6 and values.max() < 1.2, name
    for leaf in (blocks["scale"], blocks["query_bias"], update["embedding"]):
        np.testing.assert_allclose(np.abs(leaf), 1 + 0.09 / 0.19, rtol=0.01)


@pytest.mark.parametrize(
    ("schedule", "step", "fraction"),
    [
        ("cosine", 0, 1 / 11),  # linear warmup over 10 steps starts above zero
        ("cosine", 10, 1.0),
        ("cosine", 60, 0.55),  # half-way: the mean of 1 and 0.1
        ("cosine", 110, 0.1),
        ("constant", 109, 1.0),
        ("wsd", 50, 1.0),
        ("wsd", 87, 1.0),  # decays over the last fifth: 22 steps from 88
        ("wsd", 98, 0.55),
        ("wsd", 109, 0.1),
    ],
)
def test_schedules_at_hand_made_points(schedule, step, fraction, decay_fraction=0.2):
    config = TrainConfig(
        num_steps=110, warmup_steps=10, learning_rate=1.0, schedule=schedule, final_fraction=0.1,
        decay_fraction=decay_fraction,
    )  # fmt: skip
    assert float(jax.jit(learning_rate_fraction, static_argnums=0)(config, step)) == (
        pytest.approx(fraction, abs=1e-6)
    )


def test_a_decay_of_one_step_is_the_last_step():
    for step, fraction in ((108, 1.0), (109, 0.1)):
        test_schedules_at_hand_made_points("wsd", step, fraction, decay_fraction=1 / 110)
