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


class Norm(nnx.Module):
    """Normalize over the last axis, then scale each feature; float32 inside.

    "rms": x / sqrt(mean(x^2) + epsilon) (1910.07467). "zero_centered_rms": scaled by 1 + the
    parameter, which starts at 0. "layer": the mean comes off first, a bias is added (1607.06450).
    """

    def __init__(self, config: Architecture, size: int):
        starts_at_0 = config.norm == "zero_centered_rms"
        self.scale = nnx.Param(jnp.zeros(size) if starts_at_0 else jnp.ones(size), axes=(None,))
        if config.norm == "layer":
            self.bias = zeros_param((size,), (None,))
        self.config = config

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize in the dtype of `x`."""
        kind, epsilon = self.config.norm, self.config.norm_epsilon

        @recomputed
        def normalize(x, scale, bias):
            x32 = x.astype(jnp.float32)
            if kind == "layer":
                x32 -= jnp.mean(x32, axis=-1, keepdims=True)
            mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
            scale = 1 + scale if kind == "zero_centered_rms" else scale
            normed = x32 * jax.lax.rsqrt(mean_square + epsilon) * scale
            return (normed if bias is None else normed + bias).astype(x.dtype)

        return normalize(x, self.scale[...], self.bias[...] if kind == "layer" else None)


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
