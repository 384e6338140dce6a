"""Programs that fit a device's memory, found without running them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from benchmarks.shapes import Fitting
from benchmarks.timing import Sweep
from configs.changes import change
from experiment.config import ExperimentConfig


class Program(NamedTuple):
    """A compiled step that has not run yet.

    Attributes:
      config: what it was made for.
      updates: makes a fresh state, and gives what goes on from it.
      text: the compiled program.
      bytes: that its arguments, results and scratch memory take, as the compiler plans them.
    """

    config: ExperimentConfig
    updates: Callable[[], Callable[[], dict[str, jax.Array]]]
    text: Callable[[], str]
    bytes: int

    @property
    def fits(self) -> bool:
        """Into the memory that JAX has; true where a device does not say how much that is."""
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        return limit is None or self.bytes < limit


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
    one = Sweep([config])
    compiled = one.compiled()
    make = functools.partial(one.updates, compiled)
    return Program(config, make, compiled.as_text, planned_bytes(compiled))


def planned_bytes(compiled: Any) -> int:
    """Of a program: arguments and results, those that share memory once, and scratch."""
    plan = compiled.memory_analysis()
    if plan is None:
        return 0
    parts = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return int(parts - plan.alias_size_in_bytes)
