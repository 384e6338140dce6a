"""Compilation time of a training step."""

import functools
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from benchmarks.record import Result
from benchmarks.shapes import cut
from benchmarks.suite import Setting
from benchmarks.timing import alternate, random_batch
from configs import demo, paper_2b
from configs.changes import change
from experiment.config import ExperimentConfig
from experiment.stages import split
from training.members import member_arrays
from training.step import init_state, train_step


def measure(setting: Setting) -> Iterator[Result]:
    """Compare `paper_2b`'s step with 32 and with 4 layers: a scan compiles its body once."""
    large = change(cut(paper_2b.configs[0], setting.scale), data=dict(batch_size=1))
    functions = {f"{n} layers": compiling(change(large, model=dict(num_layers=n))) for n in (32, 4)}
    # One round of CPU time, which varies little: each compilation takes half a minute.
    seconds = alternate(functions, 1, time.process_time)
    demo_seconds = alternate({"demo": compiling(demo.configs[0])}, 1)["demo"]
    yield Result.from_seconds(
        "compile paper_2b's step",
        "CPU time with 32 layers over 4",
        seconds,
        at_most=1.3,
        measured={
            "s at 32 layers": min(seconds["32 layers"]),
            "s by the clock for the demo's step": min(demo_seconds),
        },
    )


def compiling(config: ExperimentConfig) -> Callable[[], None]:
    """Return a function that lowers and compiles the step, without allocating its arrays."""
    state = jax.eval_shape(functools.partial(init_state, config), np.uint32(0))
    arguments = (state, member_arrays(split(config)), random_batch(config), np.int32(0))

    def compile_anew() -> None:
        jax.clear_caches()
        step = jax.jit(functools.partial(train_step, config), donate_argnums=0)
        step.lower(*arguments).compile()

    return compile_anew
