"""What compiling takes."""

import functools
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import alternate, random_batch
from configs import demo, paper_2b
from configs.changes import change
from experiment.config import ExperimentConfig
from experiment.stages import split
from training.members import member_arrays
from training.step import init_state, train_step


def measure(setting: Setting) -> Iterator[Result]:
    """`paper_2b`'s step with 32 layers over 4: a scan's compile time does not grow with depth."""
    (large,), (small,) = paper_2b.configs, demo.configs
    large = change(large, data=dict(batch_size=1))
    functions = {
        f"{layers} layers": compiling(change(large, model=dict(num_layers=layers)))
        for layers in (32, 4)
    }
    rounds = 1  # of CPU time, which differs little; each compiles for half a minute
    seconds = alternate(functions, rounds, time.process_time)
    deep, shallow = seconds.values()
    # By the clock: a user waits.
    own = alternate({"demo": compiling(small)}, rounds)["demo"]
    yield Result.of_seconds(
        "compile paper_2b's step",
        "CPU time with 32 layers over 4",
        deep,
        shallow,
        at_most=1.3,
        measured={"s at 32 layers": min(deep), "s by the clock for the demo's step": min(own)},
    )


def compiling(config: ExperimentConfig) -> Callable[[], None]:
    """Lowers and compiles anew; no array of the model's size is ever made."""
    state = jax.eval_shape(functools.partial(init_state, config), np.uint32(0))
    arguments = (state, member_arrays(split(config)), random_batch(config), np.int32(0))

    def compile_anew() -> None:
        jax.clear_caches()
        step_fn = jax.jit(functools.partial(train_step, config), donate_argnums=0)
        step_fn.lower(*arguments).compile()

    return compile_anew
