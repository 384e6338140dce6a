"""The compiled programs of generation: read prompts, go on for some tokens."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from generation.sampling import Draws, Sampler, choose
from model import decoding
from model.config import ModelConfig
from model.decoding import Layout, Weights
from model.positions import PositionTable

# Tokens that one call of `go_on` may add: few enough for text to flow, enough that calling is free.
CHUNK = 32


class Rows(NamedTuple):
    """Rows on their way.

    Attributes:
      caches: of all tokens but the newest; for `read_anew` their ids `[B, T]`.
      tokens_B: the newest token, int32.
      positions_B: its place in the row, int32.
      done_B: bool; what has ended is computed on, and not looked at.
    """

    caches: Any
    tokens_B: Any
    positions_B: Any
    done_B: Any


class Static(NamedTuple):
    """What is compiled in.

    Attributes:
      config: as `decoding.network` makes it.
      layout: of the caches.
      sampler: how tokens are chosen.
      end: the id that ends a text, or -1.
    """

    config: ModelConfig
    layout: Layout
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
    """Rows after their prompts, with the first token of each."""
    with jax.default_matmul_precision("highest"):
        logits_BV, caches = decoding.prefill(
            static.config, static.layout, weights, table, tokens_BT, lengths_B
        )
    tokens_B = choose(static.sampler, draws, logits_BV, lengths_B)
    return Rows(caches, tokens_B, lengths_B, tokens_B == static.end)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=3)
def go_on(
    static: Static,
    weights: Weights,
    tables: PositionTable,
    rows: Rows,
    draws: Draws,
    count: jax.Array,
) -> tuple[Rows, jax.Array]:
    """Adds `count` tokens to each row, or fewer where all are done.

    Args:
      static: see `Static`.
      weights: see `decoding.unstack`.
      tables: one for each of the tokens in turn, or one for all of them; stacked in front.
      rows: their caches are taken over, and gone.
      draws: chance.
      count: at most CHUNK.

    Returns:
      The rows, and the tokens `[B, CHUNK]`: those behind `count`, or behind a row's end, are none.
    """

    old, starts_B = rows.caches, rows.positions_B

    def step(table: PositionTable, rows: Rows, i: jax.Array) -> tuple[jax.Array, Any]:
        token = decoding.Token(rows.tokens_B, rows.positions_B, i)
        caches = old, rows.caches
        with jax.default_matmul_precision("highest"):
            return decoding.decode_step(static.config, static.layout, weights, table, caches, token)

    rows = rows._replace(caches=decoding.recent(old, CHUNK))
    rows, chosen_BC, i = _repeat(static, step, tables, rows, draws, count)
    return rows._replace(caches=decoding.merged(old, rows.caches, starts_B, i)), chosen_BC


@functools.partial(jax.jit, static_argnums=0, donate_argnums=3)
def read_anew(
    static: Static,
    weights: Weights,
    tables: PositionTable,
    rows: Rows,
    draws: Draws,
    count: jax.Array,
) -> tuple[Rows, jax.Array]:
    """As `go_on`, by reading the whole row for each token; for `Rows.caches` stand all its ids.

    Where frequencies change with a row's length, what a layer found for an earlier token changes
    with it, and with that the keys and values of all layers above: no cache of them is right.
    """

    def step(table: PositionTable, rows: Rows, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        lines_B = jnp.arange(rows.tokens_B.shape[0])
        tokens_BT = rows.caches.at[lines_B, rows.positions_B].set(rows.tokens_B)
        with jax.default_matmul_precision("highest"):
            logits_BV, _ = decoding.prefill(
                static.config, static.layout, weights, table, tokens_BT, rows.positions_B + 1
            )
        return logits_BV, tokens_BT

    rows, chosen_BC, _ = _repeat(static, step, tables, rows, draws, count)
    return rows, chosen_BC


@functools.partial(jax.jit, static_argnums=0)
def grow(layout: Layout, caches: Any) -> Any:
    """See `decoding.grown`."""
    return decoding.grown(caches, layout)


def _repeat(static, step, tables, rows, draws, count):
    """`step` for up to `count` tokens, in one program; see `go_on`. Also how many they were."""

    def body(state):
        i, rows, chosen_BC = state
        table = jax.tree.map(lambda x: x[jnp.minimum(i, x.shape[0] - 1)], tables)
        logits_BV, caches = step(table, rows, i)
        # Done rows stay where they are: within their cache, however long the others are.
        positions_B = rows.positions_B + ~rows.done_B
        tokens_B = choose(static.sampler, draws, logits_BV, positions_B)
        tokens_B = jnp.where(rows.done_B, rows.tokens_B, tokens_B)
        done_B = rows.done_B | (tokens_B == static.end)
        chosen_BC = chosen_BC.at[:, i].set(tokens_B)
        return i + 1, Rows(caches, tokens_B, positions_B, done_B), chosen_BC

    def unfinished(state):
        i, rows, _ = state
        return (i < count) & ~rows.done_B.all()

    B = rows.tokens_B.shape[0]
    first = jnp.int32(0), rows, jnp.zeros((B, CHUNK), jnp.int32)
    i, rows, chosen_BC = jax.lax.while_loop(unfinished, body, first)
    return rows, chosen_BC, i
