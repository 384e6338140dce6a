"""The compiled training step that benchmarks time, and the fastest of alternatives."""

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiment.config import ExperimentConfig
from experiment.mesh import make_global_batch, make_mesh
from experiment.stages import split
from training.members import abstract_state, first_state, shardings_of
from training.step import compile_step, member_arrays


class Attempt(NamedTuple):
    """Timings of one way to train a model.

    Attributes:
      seconds: of each round, by name; the first ones are those of steps.
      tokens: per round.
      config: of the model.
      planned_bytes: of memory; 0 if unknown.
    """

    seconds: dict[str, list[float]]
    tokens: int
    config: ExperimentConfig
    planned_bytes: int = 0

    @property
    def rates(self) -> list[float]:
        """Tokens/s of each round."""
        return [self.tokens / seconds for seconds in next(iter(self.seconds.values()))]


def fastest(
    attempts: Mapping[str, Callable[[], Attempt]], errors: type[Exception] = MemoryError
) -> Generator[str, None, Attempt | None]:
    """Try alternatives; yield a note for each and return the fastest.

    Args:
      attempts: by name.
      errors: those after which the other alternatives are still tried.
    """
    best: Attempt | None = None
    for name, make in attempts.items():
        try:
            attempt = make()
        except errors as error:
            yield f"{name}: {describe(error)}"
            continue
        yield f"{name}: {max(attempt.rates):,.0f} tokens/s"
        if best is None or max(attempt.rates) > max(best.rates):
            best = attempt
    return best


def describe(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Raise MemoryError instead of XLA's error if the device's memory is exhausted."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError("the program does not fit into memory") from None


def random_batch(config: ExperimentConfig) -> dict[str, np.ndarray]:
    """Return a batch with one document per row and a loss at every token: the most expensive."""
    random = np.random.default_rng(0)
    B, T = config.data.batch_size, config.data.context_length
    tokens = random.integers(0, config.model.vocab_size, size=(B, T + 1)).astype(np.int32)
    return {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        "segment_ids": np.ones((B, T), np.int32),
        "loss_mask": np.ones((B, T), np.float32),
    }


class TrainStep:
    """The program that the training loop compiles for one or more members.

    Attributes:
      members: their configs.
      mesh: that of the training loop; of several accelerators the first only.
    """

    def __init__(self, *members: ExperimentConfig):
        config, count = members[0], len(members)
        devices = None if jax.default_backend() == "cpu" else jax.devices()[:1]
        self.members, self.mesh = members, make_mesh(config, count, devices)
        self._state = abstract_state(config, count, self.mesh)
        self._arrays = member_arrays([split(member)[0] for member in members])
        size = config.data.batch_size
        self._batch = make_global_batch(random_batch(config), self.mesh, size, range(size))

    @functools.cached_property
    def compiled(self) -> Any:
        """The compiled program; no array of the model's size is allocated."""
        config, shardings = self.members[0], shardings_of(self._state)
        step = compile_step(config, len(self.members), self.mesh, shardings)
        with jax.set_mesh(self.mesh):
            return step.lower(self._state, self._arrays, self._batch, np.int32(0)).compile()

    @property
    def planned_bytes(self) -> int:
        """Bytes of the program's arguments, results and scratch, shared memory once."""
        plan = self.compiled.memory_analysis()
        if plan is None:
            return 0
        total = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
        return int(total - plan.alias_size_in_bytes)

    def check_memory(self) -> None:
        """Raise MemoryError if the program needs more memory than JAX has on the device."""
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        if limit is not None and self.planned_bytes >= limit:
            raise MemoryError(f"{self.planned_bytes / 2**30:.1f} GiB do not fit")

    def make_update(self) -> Callable[[], dict[str, jax.Array]]:
        """Return a function that makes one more update, from a fresh state on."""
        state = first_state(self.members, shardings_of(self._state))

        def update() -> dict[str, jax.Array]:
            nonlocal state
            with jax.set_mesh(self.mesh):
                state, scalars = self.compiled(state, self._arrays, self._batch, np.int32(100))
            return scalars

        return update
