"""Compile time of paper_2b's training step on abstract values, at 32 and at 4 layers."""

import functools
import time
from collections.abc import Callable

import jax
import numpy as np

from benchmarks.timing import alternate, compare, random_batch
from configs import find_config
from configs.changes import change
from experiment.config import ExperimentConfig
from experiment.stages import split
from training.members import member_arrays
from training.step import init_state, train_step


def compiling(config: ExperimentConfig) -> Callable[[], None]:
    """Lowers and compiles anew; no array of the model's size is ever made."""
    state = jax.eval_shape(functools.partial(init_state, config), np.uint32(0))
    arguments = (state, member_arrays(split(config)), random_batch(config), np.int32(0))

    def compile_anew() -> None:
        jax.clear_caches()
        step_fn = jax.jit(functools.partial(train_step, config), donate_argnums=0)
        step_fn.lower(*arguments).compile()

    return compile_anew


def main(rounds: int) -> None:
    config = change(find_config("paper_2b"), data=dict(batch_size=1))
    functions = {
        f"{layers} layers": compiling(change(config, model=dict(num_layers=layers)))
        for layers in (32, 4)
    }
    print("CPU time to lower and compile:")
    compare(alternate(functions, min(rounds, 3), time.process_time))
