"""Tokens a second of the input pipeline, one worker, beside what the demo's training consumes."""

import dataclasses
import time

import jax
import numpy as np

from benchmarks.timing import random_batch
from data import pipeline
from experiment.mesh import make_mesh
from experiment.overrides import apply, find_config
from experiment.stages import split
from training.members import abstract_state, first_state, member_arrays
from training.step import compile_step

BATCHES = 200


def pipeline_rate(config, num_workers: int) -> float:
    """Tokens a second, from ArrayRecord to stacked batches, after the first batch."""
    data = dataclasses.replace(config.data, num_workers=num_workers)
    batches = pipeline.make_batches(pipeline.open_data(data), start_step=0)
    for _ in range(20):  # fills the prefetch buffers, which must not count
        next(batches)
    start = time.perf_counter()
    for _ in range(BATCHES):
        next(batches)
    elapsed = time.perf_counter() - start
    return BATCHES * data.batch_size * data.context_length / elapsed


def demo_rate(config) -> float:
    """Tokens a second of the demo's sweep: all members on the same batch, the fastest of five."""
    members = [apply(config, list(own)) for own in config.members] or [config]
    stages, mesh = [split(m)[0] for m in members], make_mesh(config, len(members))
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(config, len(members), mesh))
    state = first_state(members, shardings, None)
    step_fn = compile_step(config, len(members), mesh, shardings)
    member, batch, seconds = member_arrays(stages), random_batch(config), []
    for _ in range(6):
        started = time.perf_counter()
        state, scalars = step_fn(state, member, batch, np.int32(0))
        jax.block_until_ready(scalars)
        seconds.append(time.perf_counter() - started)
    return batch["tokens"].size / min(seconds[1:])


def main(rounds: int) -> None:
    config = find_config("demo")
    consumed = demo_rate(config)
    print(f"the demo consumes {consumed:,.0f} tokens/s ({len(config.members)} members a batch)")
    for num_workers, name in ((0, "a thread of the trainer"), (1, "one worker process")):
        rates = sorted(pipeline_rate(config, num_workers) for _ in range(min(rounds, 3)))
        print(
            f"{name}: {rates[-1]:,.0f} tokens/s, {rates[-1] / consumed:.0f} times that "
            f"(median {rates[len(rates) // 2] / consumed:.0f})"
        )
