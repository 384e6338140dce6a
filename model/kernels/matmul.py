"""Matrix products with a backward pass that XLA does fast on a CPU too."""

import jax


@jax.custom_vjp
def matmul(x, w):
    """`x @ w`, tokens times weights: `[..., D]` and `[D, F]` give `[..., F]`."""
    return x @ w


def _forward(x, w):
    return x @ w, (x, w)


def _backward(residuals, g):
    x, w = residuals
    # XLA on a CPU copies the operand it must transpose, fusing whatever made it into a slow strided
    # loop. JAX's own rule, (g' x)', transposes the wide g; here it is x, which is at hand.
    if jax.sharding.get_abstract_mesh().size <= 1:  # 0 where no mesh is set
        return g @ w.T, x.reshape(-1, x.shape[-1]).T @ g.reshape(-1, g.shape[-1])
    # Rows and tokens, merged into one axis, could not stay where a mesh has split them.
    tokens = tuple(range(x.ndim - 1))
    return g @ w.T, jax.lax.dot_general(x, g, ((tokens, tokens), ((), ())))


matmul.defvjp(_forward, _backward)
