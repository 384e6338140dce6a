"""Programs that fit a device's memory, found without running them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.shapes import Fitting
from benchmarks.timing import one_member, random_batch, updates
from configs.changes import change
from experiment.config import ExperimentConfig
from experiment.stages import split
from training.members import member_arrays
from training.step import init_state, train_step


class Program(NamedTuple):
    """A compiled step that has not run yet.

    Attributes:
      config: what it was made for.
      compiled: the program.
      bytes: that its arguments, results and scratch memory take, as the compiler plans them.
    """

    config: ExperimentConfig
    compiled: Any
    bytes: int

    @property
    def fits(self) -> bool:
        """Into the memory that JAX has; true where a device does not say how much that is."""
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        return limit is None or self.bytes < limit

    def updates(self) -> Callable[[], dict[str, jax.Array]]:
        """What goes on from a fresh state, update by update."""
        return updates(self.compiled, *one_member(self.config), random_batch(self.config))


def fitted(config: ExperimentConfig, fitting: Fitting) -> ExperimentConfig:
    """`config` with these rows in one batch, and this remat."""
    return change(
        config,
        model=dict(remat=fitting.remat),
        data=dict(batch_size=fitting.rows),
        train=dict(accumulate=1),
    )


def compile_step(config: ExperimentConfig) -> Program:
    """The step of one member; nothing of the model's size is made."""
    state = jax.eval_shape(functools.partial(init_state, config), np.uint32(0))
    arguments = (state, member_arrays(split(config)[:1]), random_batch(config), np.int32(0))
    step = jax.jit(functools.partial(train_step, config), donate_argnums=0)
    compiled = step.lower(*arguments).compile()
    return Program(config, compiled, planned_bytes(compiled))


def planned_bytes(compiled: Any) -> int:
    """Of a program: arguments and results, those that share memory once, and scratch."""
    plan = compiled.memory_analysis()
    if plan is None:
        return 0
    parts = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return int(parts - plan.alias_size_in_bytes)
