"""The small parts: parameters with named axes, RMSNorm, the gated MLP."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from model.config import ModelConfig


def normal_param(rngs: nnx.Rngs, shape: tuple, axes: tuple, *, fan_in: int) -> nnx.Param:
    """A parameter drawn from N(0, 1 / fan_in); `axes` names its dims for `model.sharding`."""
    return nnx.Param(jax.random.normal(rngs.params(), shape) / math.sqrt(fan_in), axes=axes)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + epsilon), scaled per feature; float32 inside (1910.07467)."""

    def __init__(self, size: int, epsilon: float):
        self.scale = nnx.Param(jnp.ones(size), axes=(None,))
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalizes over the last axis; keeps dtype."""
        x32 = x.astype(jnp.float32)
        mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
        return (x32 * jax.lax.rsqrt(mean_square + self.epsilon) * self.scale[...]).astype(x.dtype)


class Mlp(nnx.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (2002.05202)."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        D, F = config.embed_dim, config.mlp_dim
        self.gate = normal_param(rngs, (D, F), ("embed", "mlp"), fan_in=D)
        self.up = normal_param(rngs, (D, F), ("embed", "mlp"), fan_in=D)
        # Every block adds to the residual stream twice: keep its variance flat in depth.
        self.down = normal_param(rngs, (F, D), ("mlp", "embed"), fan_in=2 * config.num_layers * F)

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Maps `[B, T, D]` to `[B, T, D]`."""
        dtype = x_BTD.dtype
        gate_BTF = jnp.einsum("BTD,DF->BTF", x_BTD, self.gate[...].astype(dtype))
        up_BTF = jnp.einsum("BTD,DF->BTF", x_BTD, self.up[...].astype(dtype))
        hidden_BTF = jax.nn.silu(gate_BTF) * up_BTF
        return jnp.einsum("BTF,FD->BTD", hidden_BTF, self.down[...].astype(dtype))
