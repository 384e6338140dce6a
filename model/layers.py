"""Small parts: parameters with named axes, norms, the MLP."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx

from ropewalk.model.axes import gather_weight
from ropewalk.model.config import Architecture
from ropewalk.model.kernels.matmul import matmul


def normal_param(rngs: nnx.Rngs, shape: tuple, axes: tuple, *, fan_in: int) -> nnx.Param:
    """Draw a parameter from N(0, 1 / fan_in); `axes` names its dimensions for `model.sharding`."""
    return nnx.Param(jax.random.normal(rngs.params(), shape) / math.sqrt(fan_in), axes=axes)


def zeros_param(shape: tuple, axes: tuple) -> nnx.Param:
    """Return a parameter that starts at 0: a bias, or a gate."""
    return nnx.Param(jnp.zeros(shape), axes=axes)


def linear(x: jax.Array, weight: jax.Array, bias: nnx.Param | None = None) -> jax.Array:
    """Multiply `x` by `weight` in x's dtype: `[..., D]` and `[D, ...]` give `[..., ...]`."""
    w = gather_weight(weight.astype(x.dtype).reshape(weight.shape[0], -1))
    product = matmul(x, w).reshape(*x.shape[:-1], *weight.shape[1:])
    return product if bias is None else product + bias[...].astype(product.dtype)


# The backward pass recomputes elementwise operations, which costs less than storing their results.
recomputed = functools.partial(jax.checkpoint, prevent_cse=False)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + epsilon), scaled per feature; float32 inside (1910.07467).

    If `zero_centered`, features are scaled by 1 + the parameter, which starts at 0.
    """

    def __init__(self, size: int, epsilon: float, *, zero_centered: bool = False):
        self.scale = nnx.Param(jnp.zeros(size) if zero_centered else jnp.ones(size), axes=(None,))
        self.epsilon, self.zero_centered = epsilon, zero_centered

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize over the last axis, in the dtype of `x`."""

        @recomputed
        def normalize(x, scale):
            x32 = x.astype(jnp.float32)
            mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
            scale = 1 + scale if self.zero_centered else scale
            return (x32 * jax.lax.rsqrt(mean_square + self.epsilon) * scale).astype(x.dtype)

        return normalize(x, self.scale[...])


class LayerNorm(nnx.Module):
    """(x - mean(x)) / sqrt(variance(x) + epsilon), scaled and shifted per feature (1607.06450)."""

    def __init__(self, size: int, epsilon: float):
        self.scale = nnx.Param(jnp.ones(size), axes=(None,))
        self.bias = zeros_param((size,), (None,))
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize over the last axis, in the dtype of `x`; float32 inside."""

        @recomputed
        def normalize(x, scale, bias):
            x32 = x.astype(jnp.float32)
            x32 -= jnp.mean(x32, axis=-1, keepdims=True)
            variance = jnp.mean(x32 * x32, axis=-1, keepdims=True)
            return (x32 * jax.lax.rsqrt(variance + self.epsilon) * scale + bias).astype(x.dtype)

        return normalize(x, self.scale[...], self.bias[...])


def make_norm(config: Architecture, size: int) -> RMSNorm | LayerNorm:
    """Return a norm over `size` features of the kind `config.norm`."""
    if config.norm == "layer":
        return LayerNorm(size, config.norm_epsilon)
    zero_centered = config.norm == "zero_centered_rms"
    return RMSNorm(size, config.norm_epsilon, zero_centered=zero_centered)


_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": jax.nn.gelu,
}


class Mlp(nnx.Module):
    """down(activation(gate(x)) * up(x)) (2002.05202), or without a gate down(activation(up(x)))."""

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        D, F = config.embed_dim, config.mlp_dim
        if config.mlp_gate:
            self.gate = normal_param(rngs, (D, F), ("embed", "mlp"), fan_in=D)
        self.up = normal_param(rngs, (D, F), ("embed", "mlp"), fan_in=D)
        # Every block adds to the residual stream twice: keep the variance constant in depth.
        self.down = normal_param(rngs, (F, D), ("mlp", "embed"), fan_in=2 * config.num_layers * F)
        if config.mlp_bias:
            if config.mlp_gate:
                self.gate_bias = zeros_param((F,), ("mlp",))
            self.up_bias = zeros_param((F,), ("mlp",))
            self.down_bias = zeros_param((D,), (None,))
        self.config = config

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Map `[B, T, D]` to `[B, T, D]`."""
        activate = _ACTIVATIONS[self.config.activation]
        up_BTF = linear(x_BTD, self.up[...], getattr(self, "up_bias", None))
        if self.config.mlp_gate:
            gate_BTF = linear(x_BTD, self.gate[...], getattr(self, "gate_bias", None))
            hidden_BTF = recomputed(lambda gate, up: activate(gate) * up)(gate_BTF, up_BTF)
        else:
            hidden_BTF = recomputed(activate)(up_BTF)
        return linear(hidden_BTF, self.down[...], getattr(self, "down_bias", None))
