"""The parts that members of a sweep share, those that may differ, and the programs of both.

Batches, seeds, and the arrays of members are arguments of a program, so runs of equal shape (seeds,
items of a study) need one program. JAX caches compiled programs by the jitted function, so this
module caches the jitted function.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ropewalk.experiment.config import ExperimentConfig, TrainConfig
from ropewalk.experiment.stages import Stage, split
from ropewalk.model.config import Architecture, PositionTable
from ropewalk.model.positions import stack_tables

# Compiler options of TPUs, for training and `tpu.aot`. They are passed with each program, so they
# need no environment variable, and `tpu.aot` estimates the same step that training runs.
#
# XLA may turn a product with a gathered weight into a ring of smaller products ("windowed einsum").
# On a slice without a torus this costs more than the gather that it hides, and on every slice
# each part writes the full product to HBM. This threshold, in MiB, is larger than any product and
# disables the transformation. Google's recipes for v6e set it
# (github.com/AI-Hypercomputer/tpu-recipes, `no_collective_matmul`).
_TPU_OPTIONS = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}


class StaticConfig(NamedTuple):
    """The part of a config that training programs are compiled on.

    Everything else reaches a program as an array (`MemberArrays`): frequencies and
    windows, the peak learning rate, seeds, and rows. Members that train together may differ in
    those arrays, in the seed, and in the run they start from, and in nothing else (`shared_part`).

    Attributes:
      model: the architecture.
      train: the optimizer and its schedule, relative to a peak learning rate of 1.
    """

    model: Architecture
    train: TrainConfig


def static_config(config: ExperimentConfig) -> StaticConfig:
    """Return the static part of `config`."""
    train = dataclasses.replace(config.train, learning_rate=1.0)
    return StaticConfig(config.model.architecture, train)


class MemberArrays(NamedTuple):
    """The arrays in which members of a sweep differ.

    Attributes:
      table: frequencies, scales and windows.
      learning_rate: its peak, float32.
    """

    table: PositionTable
    learning_rate: jax.Array | np.floating


def stack(trees: Sequence[Any]) -> Any:
    """Stack members along a new leading axis; a single member stays as it is."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: np.stack(x), *trees)


def member_arrays(stages: Sequence[Stage]) -> MemberArrays:
    """Return the arrays in which members differ in a stage, stacked if there are several."""
    configs = [stage.config for stage in stages]
    tables = [config.model.position_table(config.data.context_length) for config in configs]
    table = tables[0] if len(tables) == 1 else stack_tables(tables)
    rates = stack([np.float32(config.train.learning_rate) for config in configs])
    return MemberArrays(table, rates)


def shared_part(config: ExperimentConfig) -> tuple[Hashable, ...]:
    """Return what members that train together have in common, for each stage of `config`.

    That is the program, the rows (with the data's seed), mesh and evaluations, and whether the
    parameters come from a run.
    """
    starts = config.start_from is not None
    return tuple(
        (static_config(stage.config), stage.config.data, config.mesh, config.evals, starts)
        for stage in split(config)
    )


def program(
    make: Callable[..., Callable],
    *arguments: Hashable,
    out_shardings: Any,
    donate: int | None = None,
    cpu_level: int | None = None,
    device_kind: str = "",
) -> Callable:
    """Return `jax.jit(make(*arguments))`, the same object for the same arguments.

    Args:
      make: a module-level function that returns the function to be jitted.
      arguments: arguments of `make`; pass configs through `static_config`.
      out_shardings: as in `jax.jit`.
      donate: index of the argument whose memory the program may reuse for its result.
      cpu_level: LLVM's optimization level on a CPU, 0 to 3, for a program that runs only once; a
        lower one compiles faster. None: XLA's default.
      device_kind: JAX's name of the chip, which selects `compiler_options`.
    """
    # Shardings are trees of dicts, which are not hashable.
    leaves, structure = jax.tree.flatten(out_shardings)
    options = compiler_options(device_kind)
    if cpu_level is not None and jax.default_backend() == "cpu":
        options = {"xla_backend_optimization_level": cpu_level}
    return _program(make, arguments, structure, tuple(leaves), donate, tuple(options.items()))


@functools.lru_cache(maxsize=64)
def _program(make, arguments, structure, leaves, donate, options) -> Callable:
    return jax.jit(
        make(*arguments),
        out_shardings=jax.tree.unflatten(structure, leaves),
        donate_argnums=donate,
        compiler_options=dict(options) or None,
    )


def compiler_options(device_kind: str) -> dict[str, str]:
    """Return the options for a chip, by its JAX device kind, except those in LIBTPU_INIT_ARGS."""
    libtpu_args = os.environ.get("LIBTPU_INIT_ARGS", "")
    options = _TPU_OPTIONS if device_kind.startswith("TPU") else {}
    return {k: v for k, v in options.items() if f"--{k}" not in libtpu_args}
