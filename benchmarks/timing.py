"""Alternating timings, and the compiled training step that benchmarks time."""

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.suite import Setting
from experiment.config import ExperimentConfig
from experiment.mesh import make_global_batch, make_mesh
from experiment.stages import split
from training.members import abstract_state, first_state, shardings_of
from training.step import compile_step, member_arrays


def alternate(
    functions: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of `rounds` calls of each function, alternating, after one warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for index in range(rounds + 1):
        for name, function in functions.items():
            start = clock()
            jax.block_until_ready(function())
            if index:
                seconds[name].append(clock() - start)
    return seconds


class Attempt(NamedTuple):
    """Timings of one way to train a model.

    Attributes:
      seconds: of each round, by name; the first ones are those of steps.
      tokens: per round.
      program: whatever the caller needs later.
      details: added to the note.
    """

    seconds: dict[str, list[float]]
    tokens: int
    program: Any
    details: str = ""

    @property
    def rates(self) -> list[float]:
        """Tokens/s of each round."""
        return [self.tokens / seconds for seconds in next(iter(self.seconds.values()))]


def fastest(
    setting: Setting,
    attempts: Mapping[str, Callable[[], Attempt]],
    enough: float,
    errors: type[Exception] = MemoryError,
) -> Generator[str, None, Attempt | None]:
    """Try alternatives; yield a note for each and return the fastest.

    Args:
      setting: its deadline ends the search.
      attempts: by name.
      enough: seconds that one may take.
      errors: those after which the other alternatives are still tried.
    """
    best: Attempt | None = None
    for name, make in attempts.items():
        if best and not setting.has_time(enough):
            yield f"{name}: no time was left"
            continue
        try:
            attempt = make()
        except errors as error:
            yield f"{name}: {describe(error)}"
            continue
        if len(attempts) > 1:
            yield f"{name}: {max(attempt.rates):,.0f} tokens/s{attempt.details}"
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
        """Bytes of memory that the compiler plans."""
        return planned_bytes(self.compiled)

    @property
    def fits(self) -> bool:
        """True if the program fits JAX's memory, or if the device does not report its size."""
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        return limit is None or self.planned_bytes < limit

    def make_update(self) -> Callable[[], dict[str, jax.Array]]:
        """Return a function that makes one more update, from a fresh state on."""
        state = first_state(self.members, shardings_of(self._state))

        def update() -> dict[str, jax.Array]:
            nonlocal state
            with jax.set_mesh(self.mesh):
                state, scalars = self.compiled(state, self._arrays, self._batch, np.int32(100))
            return scalars

        return update


def planned_bytes(compiled: Any) -> int:
    """Return the bytes of a program's arguments, results and scratch, shared memory once."""
    plan = compiled.memory_analysis()
    if plan is None:
        return 0
    total = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return int(total - plan.alias_size_in_bytes)


def repeat(function: Callable[[], Any], times: int) -> Callable[[], list]:
    """Return a function that calls `function` several times and waits for none of the results."""
    return lambda: [function() for _ in range(times)]
