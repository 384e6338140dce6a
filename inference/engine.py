"""The generation engine: chooses programs, their sizes, and the number of tokens per call."""

import functools
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.inference import decoding, programs
from ropewalk.inference.cache import cache_sizes
from ropewalk.inference.options import Options
from ropewalk.inference.programs import CHUNK, Rows, Static
from ropewalk.inference.sampling import Draws, Sampler
from ropewalk.model.config import ModelConfig, PositionTable
from ropewalk.model.positions import stack_tables
from ropewalk.model.rotary import unique_variants
from ropewalk.model.transformer import Params

_MIN_PROMPT = 64  # tokens of the smallest program for prompts
_MIN_ROOM = 256  # tokens of the smallest cache
_CALL_SECONDS = 0.05  # duration of a call: tokens stream in chunks that take about this long


def bucket(size: int, smallest: int = _MIN_PROMPT) -> int:
    """Round a number of tokens or rows up to a power of two.

    One program is compiled per bucket, and rounding at most doubles the size.
    """
    return max(smallest, 1 << (size - 1).bit_length())


class Prompts(NamedTuple):
    """Prompts of one batch.

    Attributes:
      rows: ids of each prompt, at least one.
      keys: for each prompt an integer that selects its random numbers.
    """

    rows: Sequence[Sequence[int]]
    keys: Sequence[int]


class Engine:
    """A model's weights on the device, ready to generate.

    Attributes:
      model: the model's config.
      config: its static part; see `ModelConfig.forward_architecture`.
      weights: see `decoding.unstack`.
      table: function from the length of a row to its position table.
      is_dynamic: whether frequencies depend on the row's length. Each row is then its own batch.
    """

    def __init__(
        self, model: ModelConfig, context_length: int, params: Params, dtype: str = "float32"
    ):
        """`context_length`: trained context, tokens."""
        self.model, self.config = model, model.forward_architecture(dtype)
        self.weights = decoding.unstack(self.config, params)
        self.is_dynamic = any(variant.is_dynamic for variant in unique_variants(model.rotary))

        @functools.lru_cache(maxsize=4 * CHUNK)
        def table(row_length: int) -> PositionTable:
            return model.position_table(context_length, row_length)

        self.table = table if self.is_dynamic else lambda row_length: table(context_length)

    def has_cache(self, first: int, last: int) -> bool:
        """Return whether a cache is exact for rows that grow from `first` to `last` tokens.

        It is not if their frequencies change on the way, nor for latent attention with smeared
        keys, because no cached latent holds a smeared key.
        """
        if self.model.mla is not None and self.model.shift_keys:
            return False
        return jax.tree.all(jax.tree.map(np.array_equal, self.table(first), self.table(last)))

    def generate(
        self, prompts: Prompts, options: Options, end: int
    ) -> Generator[np.ndarray, np.ndarray | None, None]:
        """Generate tokens of all rows.

        Args:
          prompts: the prompts; a single one if the model `is_dynamic`.
          options: options of generation.
          end: the id that ends a text, or -1.

        Yields:
          int32 `[B, n]`, the next tokens; ignore those after a row's `end`. The caller may send a
          bool array `[B]` of rows that need no more tokens.
        """
        batch = _Batch(self, prompts, options, end)
        new_BC = batch.start()
        while True:
            batch.drop((yield new_BC))
            if batch.remaining == 0 or batch.is_done:
                return
            new_BC = batch.decode()


class _Batch:
    """A batch of rows during generation.

    Attributes:
      remaining: number of tokens that each row may still get.
    """

    def __init__(self, engine: Engine, prompts: Prompts, options: Options, end: int):
        self._engine, self.remaining = engine, options.max_new_tokens
        # Pad the batch to a bucket with copies of the first row, which are done from the start.
        self._num_rows = len(prompts.rows)
        size = bucket(self._num_rows, smallest=1)
        indices = [i if i < self._num_rows else 0 for i in range(size)]
        self._dropped = np.arange(size) >= self._num_rows
        self._prompts = [prompts.rows[i] for i in indices]
        keys = np.array([prompts.keys[i] for i in indices], np.uint32)
        self._draws = Draws(
            jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(options.seed), keys),
            jnp.float32(options.temperature or 1),
            jnp.float32(options.top_p or 1),
        )
        self._length = max(map(len, self._prompts))  # of the longest row
        self._room = self._length + self.remaining
        sizes = None  # rows without caches are recomputed
        if engine.has_cache(self._length, self._room - 1):  # the last token is never an input
            sizes = cache_sizes(engine.model, bucket(self._room, _MIN_ROOM))
        sampler = Sampler(options.temperature == 0, options.top_k, options.top_p is not None)
        self._static = Static(engine.config, sizes, sampler, end)
        self._rows = Rows(None, None, None, None)
        self._seconds_per_token = float("inf")  # minimum so far

    @property
    def is_done(self) -> bool:
        """True if all rows have ended."""
        return bool(np.asarray(self._rows.done_B).all())

    def start(self) -> np.ndarray:
        """Process the prompts; return the first tokens, `[B, 1]`."""
        self._rows = programs.start(
            self._static,
            self._engine.weights,
            self._engine.table(self._length),
            self._pad_prompts(bucket(self._length)),
            np.array([len(ids) for ids in self._prompts], np.int32),
            self._draws,
        )
        if self._static.sizes is None:
            ids_BT = jnp.asarray(self._pad_prompts(bucket(self._room)))
            self._rows = self._rows._replace(caches=ids_BT)
        return self._add(np.asarray(self._rows.tokens_B)[:, None])

    def drop(self, dropped_B: np.ndarray | None) -> None:
        """Mark rows as done."""
        if dropped_B is not None:
            self._dropped[: self._num_rows] |= dropped_B
        done_B = np.asarray(self._rows.done_B) | self._dropped
        self._rows = self._rows._replace(done_B=jnp.asarray(done_B))

    def decode(self) -> np.ndarray:
        """Add some tokens; return them, `[B, n]`."""
        count = min(self.remaining, self._chunk_size())
        begin = time.perf_counter()
        program, tables = programs.decode, self._engine.table(self._length)
        if self._static.sizes is None:
            program, tables = programs.recompute, self._stack_tables(count)
        self._rows, chosen_BC = program(
            self._static, self._engine.weights, tables, self._rows, self._draws, count
        )
        new_BC = np.asarray(chosen_BC)[:, :count]
        seconds = (time.perf_counter() - begin) / count
        self._seconds_per_token = min(self._seconds_per_token, seconds)
        return self._add(new_BC)

    def _pad_prompts(self, size: int) -> np.ndarray:
        """Return the ids of the prompts, padded, `[B, T]`."""
        tokens_BT = np.zeros((len(self._prompts), size), np.int32)
        for row, ids in zip(tokens_BT, self._prompts, strict=True):
            row[: len(ids)] = ids
        return tokens_BT

    def _add(self, new_BC: np.ndarray) -> np.ndarray:
        self._length += new_BC.shape[1]
        self.remaining -= new_BC.shape[1]
        return new_BC[: self._num_rows]

    def _chunk_size(self) -> int:
        """Return the number of tokens of the next call: few until the speed is known."""
        return max(2, min(CHUNK, int(_CALL_SECONDS / self._seconds_per_token)))

    def _stack_tables(self, count: int) -> PositionTable:
        """Return a table for every token that a program could add, or one for all."""
        if not self._engine.is_dynamic:
            return stack_tables([self._engine.table(self._length)])
        # The newest token is not processed yet; with it, the row has its current length.
        tables = [self._engine.table(self._length + i) for i in range(count)]
        return stack_tables(tables + tables[-1:] * (CHUNK - count))
