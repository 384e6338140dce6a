"""Rows of ids continued by a model: which programs, of which sizes, how many tokens at a time."""

import functools
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from generation import programs
from generation.options import Options
from generation.programs import CHUNK, Rows, Static
from generation.sampling import Draws, Sampler
from model import decoding
from model.config import ModelConfig
from model.positions import PositionTable, position_table, stack_tables
from model.transformer import Params

_SHORTEST = 64  # tokens of the smallest program that reads a prompt
_ROOM = 256  # tokens of the smallest cache
_WAIT = 0.05  # seconds: tokens that take less together come together


def bucket(size: int, shortest: int = _SHORTEST) -> int:
    """The size of the program for `size` tokens (or rows): a power of two.

    Programs are compiled once a bucket, and a length is rounded up to twice itself at most.
    """
    return max(shortest, 1 << (size - 1).bit_length())


class Prompts(NamedTuple):
    """Rows to be continued side by side.

    Attributes:
      rows: ids of each, at least one.
      keys: of each a number that tells its chance from the others'.
    """

    rows: Sequence[Sequence[int]]
    keys: Sequence[int]


class Engine:
    """A model's weights on the device, ready to continue rows.

    Attributes:
      model: what the weights are of.
      config: as programs read it.
      weights: as `decoding.unstack` makes them.
      table: from a row's tokens to its position table.
    """

    def __init__(
        self, model: ModelConfig, context_length: int, params: Params, dtype: str = "float32"
    ):
        """`context_length`: what the model was trained at, tokens."""
        self.model, self.config = model, decoding.network(model, dtype)
        self.weights = decoding.unstack(self.config, params)
        changing = decoding.changing(model)
        # Whether rows are to be written one by one: each has frequencies of its own.
        self.alone = any(changing)
        # Whether a cache holds for one length only: what lower layers find hangs on it.
        self.deep = any(changing[:-1])

        @functools.lru_cache(maxsize=4 * CHUNK)
        def table(row_length: int) -> PositionTable:
            return position_table(model, context_length, row_length)

        self.table = table if self.alone else lambda row_length: table(context_length)

    def continued(
        self, prompts: Prompts, options: Options, end: int
    ) -> Generator[np.ndarray, np.ndarray | None, None]:
        """Tokens of all rows, as they come.

        Args:
          prompts: see `Prompts`; a single row where they must be written `alone`.
          options: when and how.
          end: the id that ends a text, or -1.

        Yields:
          int32 `[B, n]`; what stands behind a row's `end` is none. Takes, where one is sent, a bool
          `[B]`: the rows of which no more is wanted.
        """
        batch = _Batch(self, prompts, options, end)
        new = batch.start()
        while True:
            batch.drop((yield new))
            if batch.left == 0 or batch.is_done:
                return
            new = batch.go_on()


class _Batch:
    """Rows on their way.

    Attributes:
      left: tokens that each row may still get.
    """

    def __init__(self, engine: Engine, prompts: Prompts, options: Options, end: int):
        self._engine, self._end, self.left = engine, end, options.max_new_tokens
        self._sampler = Sampler(options.temperature == 0, options.top_k, options.top_p is not None)
        # Rows that only fill a bucket are the first once more, and done.
        self._count = len(prompts.rows)
        size = bucket(self._count, shortest=1)
        chosen = [i if i < self._count else 0 for i in range(size)]
        self._unwanted = np.arange(size) >= self._count
        self._written = [list(prompts.rows[i]) for i in chosen]
        keys = np.array([prompts.keys[i] for i in chosen], np.uint32)
        self._draws = Draws(
            jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(options.seed), keys),
            jnp.float32(options.temperature or 1),
            jnp.float32(options.top_p or 1),
        )
        self._length = max(map(len, self._written))  # of the longest row
        self._read = self._length
        self._rows = Rows(None, None, None, None)
        self._layout = decoding.layout(engine.model, bucket(self._length + CHUNK, _ROOM))
        self._program = programs.go_on
        self._seconds = float("inf")  # that a token takes, at best

    @property
    def is_done(self) -> bool:
        """Whether all rows have come to an end."""
        return bool(np.asarray(self._rows.done_B).all())

    def start(self) -> np.ndarray:
        """Reads the prompts; the first tokens, `[B, 1]`."""
        lengths_B = np.array([len(ids) for ids in self._written], np.int32)
        self._rows = programs.start(
            self._static(),
            self._engine.weights,
            self._engine.table(self._length),
            self._padded(bucket(self._length)),
            lengths_B,
            self._draws,
        )
        return self._add(np.asarray(self._rows.tokens_B)[:, None])

    def drop(self, unwanted: np.ndarray | None) -> None:
        """Takes rows as done."""
        if unwanted is not None:
            self._unwanted[: self._count] |= unwanted
        done_B = np.asarray(self._rows.done_B) | self._unwanted
        self._rows = self._rows._replace(done_B=jnp.asarray(done_B))

    def go_on(self) -> np.ndarray:
        """Some more tokens, `[B, n]`."""
        tables = self._tables(min(self.left, self._how_many()))
        count = len(tables)
        self._make_room(self._length + count)
        begin = time.perf_counter()
        self._rows, chosen_BC = self._program(
            self._static(),
            self._engine.weights,
            # One for every token that a program could add, or one for all.
            stack_tables(
                tables + tables[-1:] * (CHUNK - count) if self._engine.alone else tables[:1]
            ),
            self._rows,
            self._draws,
            count,
        )
        new_BC = np.asarray(chosen_BC)[:, :count]
        self._seconds = min(self._seconds, (time.perf_counter() - begin) / count)
        return self._add(new_BC)

    def _static(self) -> Static:
        return Static(self._engine.config, self._layout, self._sampler, self._end)

    def _padded(self, size: int) -> np.ndarray:
        """All ids, `[B, T]`."""
        tokens_BT = np.zeros((len(self._written), size), np.int32)
        for row, ids in zip(tokens_BT, self._written, strict=True):
            row[: len(ids)] = ids
        return tokens_BT

    def _add(self, new_BC: np.ndarray) -> np.ndarray:
        self._length, self.left = self._length + new_BC.shape[1], self.left - new_BC.shape[1]
        if self._engine.deep:  # rows may have to be read anew
            for ids, new in zip(self._written, new_BC.tolist(), strict=True):
                ids += new
        return new_BC[: self._count]

    def _how_many(self) -> int:
        """Tokens that are worth waiting for; few at first, while nobody knows what one takes."""
        return max(2, min(CHUNK, int(_WAIT / self._seconds)))

    def _tables(self, most: int) -> list[PositionTable]:
        """Tables of the next tokens, at most so many: as long as one program serves them."""
        # The newest token is not in the cache yet: with it, a row is as long as it is now.
        tables = [self._engine.table(self._length + i) for i in range(most)]
        if not self._engine.deep or self._program is programs.read_anew:
            return tables
        first = self._engine.table(self._read)
        alike = [table for table in tables if all(map(np.array_equal, table, first))]
        if alike:
            return alike
        # What the cache holds is of a table that is over.
        self._program = programs.read_anew
        self._rows = self._rows._replace(caches=jnp.asarray(self._padded(bucket(self._length))))
        return tables

    def _make_room(self, length: int) -> None:
        """Makes caches larger where rows of this length would not fit."""
        if self._program is programs.read_anew:
            missing = bucket(length) - self._rows.caches.shape[1]
            if missing > 0:
                self._rows = self._rows._replace(
                    caches=jnp.pad(self._rows.caches, ((0, 0), (0, missing)))
                )
            return
        larger = decoding.layout(self._engine.model, bucket(length, _ROOM))
        if max(larger.sizes) > max(self._layout.sizes):
            self._layout = larger
            self._rows = self._rows._replace(caches=programs.grow(larger, self._rows.caches))
