"""The compiled training step that benchmarks time."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.mesh import make_global_batch, make_mesh
from ropewalk.experiment.stages import split
from ropewalk.training.members import abstract_state, first_state, shardings_of
from ropewalk.training.programs import member_arrays
from ropewalk.training.step import compile_step


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
        self._batch = make_global_batch(random_batch(config), self.mesh, size)

    @functools.cached_property
    def compiled(self) -> Any:
        """The compiled program; no array of the model's size is allocated."""
        config, shardings = self.members[0], shardings_of(self._state)
        step = compile_step(config, len(self.members), self.mesh, shardings)
        with jax.set_mesh(self.mesh):
            return step.lower(self._state, self._arrays, self._batch, np.int32(0)).compile()

    def make_update(self) -> Callable[[], dict[str, jax.Array]]:
        """Return a function that makes one more update, from a fresh state on."""
        state = first_state(self.members, shardings_of(self._state))

        def update() -> dict[str, jax.Array]:
            nonlocal state
            with jax.set_mesh(self.mesh):
                state, scalars = self.compiled(state, self._arrays, self._batch, np.int32(100))
            return scalars

        return update
