"""Matrix products: with a backward pass that is fast on a CPU too, and with float32 results."""

import jax
import jax.numpy as jnp

from ropewalk.model.axes import on_one_device


def product(equation: str, *factors) -> jax.Array:
    """Return an einsum of factors of any dtype, summed and returned in float32."""
    return jnp.einsum(equation, *factors, preferred_element_type=jnp.float32)


@jax.custom_vjp
def matmul(x, w):
    """Compute `x @ w`, tokens times weights: `[..., D]` and `[D, F]` give `[..., F]`."""
    return x @ w


def _forward(x, w):
    return x @ w, (x, w)


def _backward(residuals, g):
    x, w = residuals
    # XLA on a CPU copies the operand that it must transpose, and fuses the operation that made it
    # into a slow strided loop. JAX's rule, (g' x)', transposes the wide g; this one transposes x.
    if on_one_device():
        return g @ w.T, x.reshape(-1, x.shape[-1]).T @ g.reshape(-1, g.shape[-1])
    # Rows and tokens cannot merge into one axis where a mesh has split them.
    tokens = tuple(range(x.ndim - 1))
    return g @ w.T, jax.lax.dot_general(x, g, ((tokens, tokens), ((), ())))


matmul.defvjp(_forward, _backward)
