"""Tokens per second of the input pipeline, beside those that a sweep of six members consumes."""

import dataclasses
import statistics
import time
from collections.abc import Iterator

from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import TrainStep, alternate, random_batch
from configs import small
from data import pipeline
from experiment.config import ExperimentConfig

BATCHES, WARM_UP, MEMBERS = 200, 20, 6


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the rate with rows made by a thread, and by one worker process."""
    (config,) = small.configs
    update = TrainStep(*[config] * MEMBERS).make_update()
    step = min(alternate({"step": update}, 5)["step"])
    consumed = random_batch(config)["tokens"].size / step  # all members use the same batch
    for num_workers, name in ((0, "a thread of the trainer"), (1, "one worker process")):
        rates = [pipeline_rate(config, num_workers) for _ in range(min(setting.rounds, 3))]
        yield Result(
            name=f"input pipeline, {name}",
            ratio=f"its tokens/s over those that a sweep of {MEMBERS} members consumes",
            least=max(rates) / consumed,
            median=statistics.median(rates) / consumed,
            at_least=20,
            measured={"tokens/s": max(rates), "consumed": consumed},
        )


def pipeline_rate(config: ExperimentConfig, num_workers: int) -> float:
    """Return tokens per second, from ArrayRecord to stacked batches, after the first batches."""
    data = dataclasses.replace(config.data, num_workers=num_workers)
    batches = pipeline.make_batches(pipeline.open_data(data), start_step=0)
    for _ in range(WARM_UP):  # fills the prefetch buffers
        next(batches)
    start = time.perf_counter()
    for _ in range(BATCHES):
        next(batches)
    return BATCHES * data.batch_size * data.context_length / (time.perf_counter() - start)
