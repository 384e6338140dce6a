"""The compiled programs of generation: process prompts, then add some tokens."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ropewalk.evals.generation import cache, decoding
from ropewalk.evals.generation.decoding import Weights
from ropewalk.evals.generation.sampling import Draws, Sampler, choose
from ropewalk.model.config import Architecture, PositionTable

# Maximum tokens per call of `decode`: few enough for streaming, enough to amortize the call.
CHUNK = 32


class Rows(NamedTuple):
    """The state of rows.

    Attributes:
      caches: caches of all tokens but the newest.
      tokens_B: the newest token, int32.
      positions_B: its position in the row, int32.
      done_B: bool, whether a row has ended. Programs compute its tokens, callers ignore them.
    """

    caches: Any
    tokens_B: Any
    positions_B: Any
    done_B: Any


class Static(NamedTuple):
    """The static argument of programs.

    Attributes:
      config: see `ModelConfig.forward_architecture`.
      sizes: slots of each layer's cache; None: no caches.
      sampler: static part of sampling.
      end: the id that ends a text, or -1.
    """

    config: Architecture
    sizes: tuple[int, ...] | None
    sampler: Sampler
    end: int


@functools.partial(jax.jit, static_argnums=0)
def start(
    static: Static,
    weights: Weights,
    table: PositionTable,
    tokens_BT: jax.Array,
    lengths_B: jax.Array,
    draws: Draws,
) -> Rows:
    """Process prompts, and choose the first token after each.

    Without a cache, this is also how each further token is chosen, after the full rows. If the
    frequencies of a layer depend on the row's length, so do its outputs for earlier tokens, and the
    keys and values of all layers above: a cache of those is never exact. Latent attention has no
    cache.
    """
    with jax.default_matmul_precision("highest"):
        logits_BV, caches = decoding.prefill(
            static.config, static.sizes, weights, table, tokens_BT, lengths_B
        )
    tokens_B = choose(static.sampler, draws, logits_BV, lengths_B)
    return Rows(caches, tokens_B, lengths_B, tokens_B == static.end)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=3)
def decode(
    static: Static,
    weights: Weights,
    table: PositionTable,
    rows: Rows,
    draws: Draws,
    count: jax.Array,
) -> tuple[Rows, jax.Array]:
    """Add `count` tokens to each row, or fewer if all rows end.

    Args:
      static: static argument.
      weights: see `decoding.unstack`.
      table: table of the rows.
      rows: state of the rows; its arrays are donated.
      draws: runtime part of sampling.
      count: number of tokens, at most CHUNK.

    Returns:
      The rows, and the tokens `[B, CHUNK]`. Ignore tokens after `count` or after a row's end.
    """
    caches, starts_B = rows.caches, rows.positions_B

    def body(state):
        i, rows, chosen_BC = state
        token = decoding.Token(rows.tokens_B, rows.positions_B, i)
        with jax.default_matmul_precision("highest"):
            logits_BV, new = decoding.decode_step(
                static.config, weights, table, (caches, rows.caches), token
            )
        # Rows that ended do not advance, so that they stay within their caches.
        positions_B = rows.positions_B + ~rows.done_B
        tokens_B = choose(static.sampler, draws, logits_BV, positions_B)
        tokens_B = jnp.where(rows.done_B, rows.tokens_B, tokens_B)
        done_B = rows.done_B | (tokens_B == static.end)
        chosen_BC = chosen_BC.at[:, i].set(tokens_B)
        return i + 1, Rows(new, tokens_B, positions_B, done_B), chosen_BC

    def unfinished(state):
        i, rows, _ = state
        return (i < count) & ~rows.done_B.all()

    rows = rows._replace(caches=cache.new_cache(caches, CHUNK))
    first = jnp.int32(0), rows, jnp.zeros((len(starts_B), CHUNK), jnp.int32)
    i, rows, chosen_BC = jax.lax.while_loop(unfinished, body, first)
    return rows._replace(caches=cache.commit(caches, rows.caches, starts_B, i)), chosen_BC
