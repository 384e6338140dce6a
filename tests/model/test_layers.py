"""`linear` has a gradient rule of its own; here JAX's rule for the same product is the judge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ropewalk.model.layers import Mlp, Norm, linear
from tests.models import small_model


@pytest.mark.parametrize(
    "x_shape, weight_shape, formula",
    [
        ((2, 5, 6), (6, 7), "BTD,DF->BTF"),
        ((2, 5, 6), (6, 3, 4), "BTD,DNH->BTNH"),
        ((5, 6), (6, 7), "TD,DF->TF"),
    ],
)
def test_linear_and_its_gradient(x_shape, weight_shape, formula):
    random = np.random.default_rng(0)
    x, weight = (jnp.asarray(random.normal(size=s), jnp.float32) for s in (x_shape, weight_shape))

    def plain(x, weight):
        return jnp.einsum(formula, x, weight)

    (out, ours), (expected, theirs) = (jax.vjp(f, x, weight) for f in (linear, plain))
    np.testing.assert_allclose(out, expected, atol=1e-5)
    g = jnp.asarray(random.normal(size=out.shape), jnp.float32)
    for a, b in zip(ours(g), theirs(g), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    "kind, epsilon, parameters, x, expected",
    [  # the mean square of (3, 4) is 12.5, with 3.5 added 16; the variance of (3, 7) is 4
        ("rms", 3.5, [[1, 2]], [3, 4], [0.75, 2]),
        ("zero_centered_rms", 3.5, [[0, 1]], [3, 4], [0.75, 2]),
        ("layer", 12.0, [[1, 2], [0, 3]], [3, 7], [-0.5, 4]),
    ],
)
def test_norms_by_hand(kind, epsilon, parameters, x, expected):
    norm = Norm(small_model(norm=kind, norm_epsilon=epsilon), 2)
    for name, values in zip(("scale", "bias"), parameters, strict=False):
        getattr(norm, name)[...] = jnp.array(values, jnp.float32)
    np.testing.assert_allclose(norm(jnp.array(x, jnp.float32)), expected)


def test_rms_norm_is_float32_inside():
    """Squares of 300 overflow nothing and lose nothing; the result keeps its dtype."""
    x = jnp.full(8, 300, jnp.bfloat16)
    out = Norm(small_model(), 8)(x)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out.astype(jnp.float32), np.ones(8))


@pytest.mark.parametrize("activation, at_1", [("gelu", 0.8413447), ("gelu_tanh", 0.8411920)])
def test_mlp_without_a_gate(activation, at_1):
    """At 1 GELU is the normal distribution function, and its approximation 1.5e-4 below it."""
    config = small_model(mlp_gate=False, mlp_bias=True, activation=activation, mlp_dim=2)
    mlp = Mlp(config, rngs=nnx.Rngs(params=0))
    mlp.up[...], mlp.up_bias[...] = jnp.zeros((16, 2)), jnp.ones(2)
    mlp.down[...], mlp.down_bias[...] = jnp.ones((2, 16)), jnp.full(16, 5.0)
    np.testing.assert_allclose(mlp(jnp.ones((1, 1, 16))), np.full((1, 1, 16), 2 * at_1 + 5), 1e-6)
