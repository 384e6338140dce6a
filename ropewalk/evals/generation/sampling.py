"""Sampling of the next token of every row from its logits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Sampler(NamedTuple):
    """The static part of `Options`; `Draws` has the numbers.

    Attributes:
      greedy: take the most likely token instead of sampling.
      top_k: see `Options`.
      has_top_p: apply `Draws.top_p`.
    """

    greedy: bool
    top_k: int | None
    has_top_p: bool


class Draws(NamedTuple):
    """The runtime part of sampling.

    Attributes:
      keys_B: a random key per row; each token folds in its position.
      temperature, top_p: see `Options`; float32.
    """

    keys_B: jax.Array
    temperature: jax.Array
    top_p: jax.Array


def choose(
    sampler: Sampler, draws: Draws, logits_BV: jax.Array, positions_B: jax.Array
) -> jax.Array:
    """Choose the next ids, int32 `[B]`, at these positions; the lowest id among equal logits."""
    if sampler.greedy:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)

    def sample_row(key, logits_V, position):
        logits_C, ids_C = _candidates(sampler, draws, logits_V / draws.temperature)
        index = jax.random.categorical(jax.random.fold_in(key, position), logits_C)
        return ids_C[index] if ids_C is not None else index

    return jax.vmap(sample_row)(draws.keys_B, logits_BV, positions_B).astype(jnp.int32)


def _candidates(sampler: Sampler, draws: Draws, logits_V: jax.Array):
    """Return the logits and ids of tokens that may be sampled; ids are None for all tokens."""
    if sampler.top_k is None and not sampler.has_top_p:
        return logits_V, None
    V = logits_V.shape[0]
    logits_C, ids_C = jax.lax.top_k(logits_V, min(sampler.top_k or V, V))
    if sampler.has_top_p:
        probabilities_C = jax.nn.softmax(logits_C)
        # Keep a token if the more likely tokens do not reach the sum.
        before_C = jnp.cumsum(probabilities_C) - probabilities_C
        logits_C = jnp.where(before_C < draws.top_p, logits_C, -jnp.inf)
    return logits_C, ids_C
