"""Compile time of paper_2b's training step on abstract values, at 4 and at 32 layers."""

import dataclasses
import functools
import statistics
import time

import jax
import numpy as np

from benchmarks.timing import random_batch
from experiment.config import ExperimentConfig
from experiment.overrides import find_config
from model.positions import position_table
from training.step import MemberArrays, init_state, train_step


def seconds_to_compile(config: ExperimentConfig) -> float:
    """CPU seconds to lower and compile; no array of the model's size is ever made."""
    jax.clear_caches()
    state = jax.eval_shape(functools.partial(init_state, config), np.uint32(0))
    member = MemberArrays(
        position_table(config.model, config.data.context_length),
        np.float32(config.train.learning_rate),
    )
    batch = random_batch(config)
    start = time.process_time()
    step_fn = jax.jit(functools.partial(train_step, config), donate_argnums=0)
    step_fn.lower(state, member, batch, np.int32(0)).compile()
    return time.process_time() - start


def main(rounds: int) -> None:
    config = find_config("paper_2b")
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, batch_size=1))
    rounds = min(rounds, 3)
    seconds = {4: [], 32: []}
    for _ in range(rounds):
        for layers, times in seconds.items():
            model = dataclasses.replace(config.model, num_layers=layers)
            times.append(seconds_to_compile(dataclasses.replace(config, model=model)))
    ratios = [deep / shallow for shallow, deep in zip(seconds[4], seconds[32], strict=True)]
    for layers, times in seconds.items():
        median = statistics.median(times)
        print(f"{layers:>2} layers: {min(times):.1f} / {median:.1f} CPU seconds (least / median)")
    least = min(seconds[32]) / min(seconds[4])
    print(f"ratio 32 / 4 layers: {least:.2f} / {statistics.median(ratios):.2f} (least / median)")
