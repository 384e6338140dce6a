"""The next token of every row, from its logits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Sampler(NamedTuple):
    """What a compiled program knows of `Options`; the numbers are in `Draws`.

    Attributes:
      greedy: whether the likeliest token is taken, and nothing is drawn.
      top_k: as of `Options`.
      has_top_p: whether `Draws.top_p` counts.
    """

    greedy: bool
    top_k: int | None
    has_top_p: bool


class Draws(NamedTuple):
    """What chance there is.

    Attributes:
      keys_B: a random key for each row; its place in the row is folded in for each token.
      temperature, top_p: as of `Options`, float32.
    """

    keys_B: jax.Array
    temperature: jax.Array
    top_p: jax.Array


def choose(
    sampler: Sampler, draws: Draws, logits_BV: jax.Array, positions_B: jax.Array
) -> jax.Array:
    """The ids that come next, int32 `[B]`, at these positions. Of equals the lower id is first."""
    if sampler.greedy:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)

    def row(key, logits_V, position):
        logits_C, ids_C = _candidates(sampler, draws, logits_V / draws.temperature)
        drawn = jax.random.categorical(jax.random.fold_in(key, position), logits_C)
        return ids_C[drawn] if ids_C is not None else drawn

    return jax.vmap(row)(draws.keys_B, logits_BV, positions_B).astype(jnp.int32)


def _candidates(sampler: Sampler, draws: Draws, logits_V: jax.Array):
    """Logits of what may be drawn, and its ids: None where that is everything, as it is."""
    if sampler.top_k is None and not sampler.has_top_p:
        return logits_V, None
    V = logits_V.shape[0]
    logits_C, ids_C = jax.lax.top_k(logits_V, min(sampler.top_k or V, V))
    if sampler.has_top_p:
        probabilities_C = jax.nn.softmax(logits_C)
        # One belongs to the fewest that reach the sum if those before it do not.
        before_C = jnp.cumsum(probabilities_C) - probabilities_C
        logits_C = jnp.where(before_C < draws.top_p, logits_C, -jnp.inf)
    return logits_C, ids_C
