"""Tokens per second of the input pipeline, one worker, beside what a sweep of six consumes."""

import dataclasses
import time

from benchmarks.timing import Sweep, alternate, random_batch
from configs import find_config
from data import pipeline

BATCHES = 200


def pipeline_rate(config, num_workers: int) -> float:
    """Tokens per second, from ArrayRecord to stacked batches, after the first batches."""
    data = dataclasses.replace(config.data, num_workers=num_workers)
    batches = pipeline.make_batches(pipeline.open_data(data), start_step=0)
    for _ in range(20):  # fills the prefetch buffers, which must not count
        next(batches)
    start = time.perf_counter()
    for _ in range(BATCHES):
        next(batches)
    return BATCHES * data.batch_size * data.context_length / (time.perf_counter() - start)


MEMBERS = 6


def sweep_rate(config) -> float:
    """Tokens per second of a sweep: all members on the same batch, the fastest of five."""
    update, batch = Sweep([config] * MEMBERS).updates(), random_batch(config)
    return batch["tokens"].size / min(alternate({"step": update}, 5)["step"])


def main(rounds: int) -> None:
    config = find_config("small")
    consumed = sweep_rate(config)
    print(f"a sweep consumes {consumed:,.0f} tokens/s ({MEMBERS} members a batch)")
    for num_workers, name in ((0, "a thread of the trainer"), (1, "one worker process")):
        rates = sorted(pipeline_rate(config, num_workers) for _ in range(min(rounds, 3)))
        print(
            f"{name}: {rates[-1]:,.0f} tokens/s, {rates[-1] / consumed:.0f} times that "
            f"(median {rates[len(rates) // 2] / consumed:.0f})"
        )
