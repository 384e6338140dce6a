"""The generation engine: chooses programs, their sizes, and the number of tokens per call."""

import functools
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ropewalk.evals.generation import decoding, programs
from ropewalk.evals.generation.cache import cache_sizes
from ropewalk.evals.generation.options import Options
from ropewalk.evals.generation.programs import CHUNK, Static
from ropewalk.evals.generation.sampling import Draws, Sampler
from ropewalk.model.config import ModelConfig, PositionTable
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

    def __init__(self, model: ModelConfig, context_length: int, params: Params):
        """`context_length`: trained context, tokens."""
        self.model, self.config = model, model.forward_architecture()
        self.weights = decoding.unstack(self.config, params)
        self.is_dynamic = any(variant.is_dynamic for variant in unique_variants(model.rotary))

        @functools.lru_cache(maxsize=2)
        def table(row_length: int) -> PositionTable:
            return model.position_table(context_length, row_length)

        self.table = table if self.is_dynamic else lambda row_length: table(context_length)

    def has_cache(self, first: int, last: int) -> bool:
        """Return whether a cache is exact for rows that grow from `first` to `last` tokens.

        It is not if their frequencies change on the way. Plain attention only has one.
        """
        if self.model.mla is not None or self.model.scores != "rotary":
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
        # Pad the batch to a bucket with copies of the first row, which are done from the start.
        num_rows = len(prompts.rows)
        size = bucket(num_rows, smallest=1)
        indices = [i if i < num_rows else 0 for i in range(size)]
        keys = np.array([prompts.keys[i] for i in indices], np.uint32)
        draws = Draws(
            jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(options.seed), keys),
            # Beyond these, logits overflow float32.
            jnp.float32(np.clip(options.temperature or 1, 1e-30, 1e30)),
            jnp.float32(options.top_p or 1),
        )
        lengths_B = np.array([len(prompts.rows[i]) for i in indices], np.int32)
        length, remaining = int(lengths_B.max()), options.max_new_tokens
        room = length + remaining
        sizes = None
        if self.has_cache(length, room - 1):  # the last token is never an input
            sizes = cache_sizes(self.model, bucket(room, _MIN_ROOM))
        tokens_BT = np.zeros((size, bucket(room)), np.int32)
        for row, i in zip(tokens_BT, indices, strict=True):
            row[: len(prompts.rows[i])] = prompts.rows[i]
        sampler = Sampler(options.temperature == 0, options.top_k, options.top_p is not None)
        static = Static(self.config, sizes, sampler, end)
        start = functools.partial(programs.start, static, self.weights)
        rows = start(self.table(length), tokens_BT[:, : bucket(length)], lengths_B, draws)
        new_BC = np.asarray(rows.tokens_B)[:, None]
        done_B = np.arange(size) >= num_rows
        seconds_per_token = float("inf")  # minimum so far
        while True:
            length, remaining = length + new_BC.shape[1], remaining - new_BC.shape[1]
            dropped_B = yield new_BC[:num_rows]
            if dropped_B is not None:
                done_B[:num_rows] |= dropped_B
            done_B |= np.asarray(rows.done_B)
            if remaining == 0 or done_B.all():
                return
            if sizes is None:  # process the full rows again
                tokens_BT[np.arange(size), lengths_B] = new_BC[:, 0]
                lengths_B += 1
                rows = start(self.table(length), tokens_BT, lengths_B, draws)
                new_BC = np.asarray(rows.tokens_B)[:, None]
                continue
            # Few tokens until the speed is known.
            count = min(remaining, CHUNK, max(2, int(_CALL_SECONDS / seconds_per_token)))
            begin = time.perf_counter()
            rows, new_BC = programs.decode(
                static,
                self.weights,
                self.table(length),
                rows._replace(done_B=jnp.asarray(done_B)),
                draws,
                count,
            )
            new_BC = np.asarray(new_BC)[:, :count]
            seconds = (time.perf_counter() - begin) / count
            seconds_per_token = min(seconds_per_token, seconds)
