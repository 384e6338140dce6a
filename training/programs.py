"""Programs that are compiled once, however many runs of a process ask for them.

What a program computes with, batches, seeds and the arrays of members, are its arguments, so runs
of equal shape that follow one another (seeds, the pieces of a study) need one program. JAX finds a
compiled program again by the function that was jitted, so it is the function that is kept.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax

from experiment.config import ExperimentConfig
from model.rotary.nope import Nope
from training import compiling


def program_of(config: ExperimentConfig) -> ExperimentConfig:
    """`config` with all that reaches programs as an array set to one value.

    That is what members of a sweep may differ in, and the seed of the rows.
    """
    return dataclasses.replace(
        config,
        seed=0,
        start_from=None,
        model=dataclasses.replace(config.model, rotary=Nope(), window=None),
        data=dataclasses.replace(config.data, seed=0),
        train=dataclasses.replace(config.train, learning_rate=1.0),
    )


def program(
    make: Callable[..., Callable],
    *given: Hashable,
    out_shardings: Any,
    donate: int | None = None,
    runs_once: bool = False,
    device_kind: str = "",
) -> Callable:
    """`jax.jit(make(*given))`, the same object whenever the same is asked for.

    Args:
      make: a function of the module, from what the program is to what is jitted.
      given: its arguments; a config as `program_of` it.
      out_shardings: as in `jax.jit`.
      donate: the argument whose memory the program may write its result into.
      runs_once: compiling it is what takes time. On a CPU it is compiled with less effort, to the
        same numbers.
      device_kind: of the chips it runs on, whose compiler is told `compiling.options`.
    """
    # Shardings come as trees of dicts, which nothing can be looked up by.
    leaves, structure = jax.tree.flatten(out_shardings)
    told = compiling.options(device_kind)
    if runs_once and jax.default_backend() == "cpu":
        # Of LLVM: the initialisation of `demo` compiles in 2.2 s of a core instead of 6.7.
        told = {"xla_backend_optimization_level": 1}
    return _program(make, given, structure, tuple(leaves), donate, tuple(told.items()))


@functools.lru_cache(maxsize=64)
def _program(make, given, structure, leaves, donate, told) -> Callable:
    return jax.jit(
        make(*given),
        out_shardings=jax.tree.unflatten(structure, leaves),
        donate_argnums=donate,
        compiler_options=dict(told) or None,
    )
