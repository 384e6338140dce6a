"""Small parts: parameters with named axes, RMSNorm, the gated MLP."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx

from model.axes import gather_weight
from model.config import Architecture
from model.kernels.matmul import matmul


def normal_param(rngs: nnx.Rngs, shape: tuple, axes: tuple, *, fan_in: int) -> nnx.Param:
    """Draw a parameter from N(0, 1 / fan_in); `axes` names its dimensions for `model.sharding`."""
    return nnx.Param(jax.random.normal(rngs.params(), shape) / math.sqrt(fan_in), axes=axes)


def linear(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Multiply `x` by `weight` in x's dtype: `[..., D]` and `[D, ...]` give `[..., ...]`."""
    w = gather_weight(weight.astype(x.dtype).reshape(weight.shape[0], -1))
    return matmul(x, w).reshape(*x.shape[:-1], *weight.shape[1:])


# The backward pass recomputes elementwise operations, which costs less than storing their results.
recomputed = functools.partial(jax.checkpoint, prevent_cse=False)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + epsilon), scaled per feature; float32 inside (1910.07467)."""

    def __init__(self, size: int, epsilon: float):
        self.scale = nnx.Param(jnp.ones(size), axes=(None,))
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize over the last axis, in the dtype of `x`."""

        @recomputed
        def normalize(x, scale):
            x32 = x.astype(jnp.float32)
            mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
            return (x32 * jax.lax.rsqrt(mean_square + self.epsilon) * scale).astype(x.dtype)

        return normalize(x, self.scale[...])


class Mlp(nnx.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (2002.05202)."""

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        D, F = config.embed_dim, config.mlp_dim
        self.gate = normal_param(rngs, (D, F), ("embed", "mlp"), fan_in=D)
        self.up = normal_param(rngs, (D, F), ("embed", "mlp"), fan_in=D)
        # Every block adds to the residual stream twice: keep the variance constant in depth.
        self.down = normal_param(rngs, (F, D), ("mlp", "embed"), fan_in=2 * config.num_layers * F)

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Map `[B, T, D]` to `[B, T, D]`."""
        gate_BTF = linear(x_BTD, self.gate[...])
        up_BTF = linear(x_BTD, self.up[...])
        hidden_BTF = recomputed(lambda gate, up: jax.nn.silu(gate) * up)(gate_BTF, up_BTF)
        return linear(hidden_BTF, self.down[...])
