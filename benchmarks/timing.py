"""Times things alternately, so that a noisy machine is noisy for all of them."""

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from experiment.config import ExperimentConfig
from experiment.mesh import make_global_batch, make_mesh
from experiment.stages import split
from training.members import abstract_state, first_state, member_arrays, shardings_of
from training.step import MemberArrays, State, compile_step, init_state


def alternate(
    functions: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each call, in turn, `rounds` times, after one unmeasured call of each."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, function in functions.items():
            start = clock()
            jax.block_until_ready(function())
            if number:
                seconds[name].append(clock() - start)
    return seconds


def compare(seconds: dict[str, list[float]]) -> None:
    """Prints what `alternate` measured, and ratios to the last function's, as least / median."""
    *_, reference = seconds.values()
    for name, times in seconds.items():
        ratios = [own / other for own, other in zip(times, reference, strict=True)]
        print(
            f"  {name:<18} {min(times) * 1e3:.0f} / {statistics.median(times) * 1e3:.0f} ms, "
            f"ratio {min(times) / min(reference):.2f} / {statistics.median(ratios):.2f}"
        )


def random_batch(config: ExperimentConfig) -> dict[str, np.ndarray]:
    """One document per row, every target counted: what costs most."""
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


def one_member(config: ExperimentConfig) -> tuple[State, MemberArrays]:
    """A run of one member before its first update."""
    state = jax.jit(functools.partial(init_state, config))(np.uint32(0))
    return state, member_arrays(split(config)[:1])


class Sweep:
    """Members, or one, and the program that the training loop compiles for them.

    Attributes:
      members: their configs.
      mesh: as the loop lays it out; of accelerators one alone.
    """

    def __init__(self, members: Sequence[ExperimentConfig]):
        config, count = members[0], len(members)
        devices = None if jax.default_backend() == "cpu" else jax.devices()[:1]
        self.members, self.mesh = members, make_mesh(config, count, devices)
        self._state = abstract_state(config, count, self.mesh)
        self._shardings = shardings_of(self._state)
        self._step = compile_step(config, count, self.mesh, self._shardings)
        self._arrays = member_arrays([split(member)[0] for member in members])
        size = config.data.batch_size
        self._batch = make_global_batch(random_batch(config), self.mesh, size, range(size))

    def compiled(self) -> Any:
        """The program; nothing of the model's size is made."""
        with jax.set_mesh(self.mesh):
            return self._step.lower(self._state, self._arrays, self._batch, np.int32(0)).compile()

    def updates(self, step: Callable | None = None) -> Callable[[], dict[str, jax.Array]]:
        """Updates from a fresh state on, by `step` if it is compiled already."""
        state = first_state(self.members, self._shardings)
        update = updates(step or self._step, state, self._arrays, self._batch)

        def under_mesh() -> dict[str, jax.Array]:
            with jax.set_mesh(self.mesh):
                return update()

        return under_mesh


def updates(step_fn: Callable, state: State, *shared: Any) -> Callable[[], dict[str, jax.Array]]:
    """An update that goes on from the state the last one left, and returns its scalars."""

    def update() -> dict[str, jax.Array]:
        nonlocal state
        state, scalars = step_fn(state, *shared, np.int32(100))
        return scalars

    return update
