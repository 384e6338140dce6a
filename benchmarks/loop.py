"""Time that saves, and waiting for input, take from the training loop."""

import contextlib
import functools
import io
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from benchmarks.record import Result
from benchmarks.suite import Setting
from configs import demo
from data import pipeline
from experiment.mesh import device_per_core
from experiment.run import RunDirectory
from training.sweep import train_sweep

# Steps of a run, steps between its saves, and steps that are not timed.
STEPS, SAVE_EVERY, SKIPPED = 120, 25, 20
MEMBERS = ("model.rotary.base=10,100", "model.num_heads=4", "seed=0")
SECONDS_BETWEEN_SAVES = 60  # of real runs


def measure(setting: Setting) -> Iterator[Result]:
    """Train two members of the demo with saves and without, alternating."""
    device_per_core()  # as sweep.py does
    seconds: dict[str, list[float]] = {"saves": [], "no saves": []}
    waits = []
    for index in range(min(setting.rounds, 3) + 1):
        for name, save_every in (("saves", SAVE_EVERY), ("no saves", STEPS)):
            duration, waiting = train(save_every)
            if index:  # the first runs compile
                seconds[name].append(duration)
                waits.append(waiting / duration)
    num_saves = len(range(SAVE_EVERY, STEPS, SAVE_EVERY))
    fastest = (min(seconds["saves"]) - min(seconds["no saves"])) / num_saves
    median = statistics.median(
        (a - b) / num_saves for a, b in zip(seconds["saves"], seconds["no saves"], strict=True)
    )
    yield Result(
        name="a save a minute, two members of the demo",
        ratio="time with saves over time without",
        least=1 + fastest / SECONDS_BETWEEN_SAVES,
        median=1 + median / SECONDS_BETWEEN_SAVES,
        at_most=1.01,
        measured={"ms a save of both": 1e3 * median},
    )
    yield Result(
        name="waiting for input",
        ratio="time the loop waits for rows over time of its steps",
        least=min(waits),
        median=statistics.median(waits),
        at_most=0.02,
        measured={"ms a step": 1e3 * min(seconds["no saves"]) / (STEPS - SKIPPED)},
    )


def train(save_every: int) -> tuple[float, float]:
    """Train a sweep; return the seconds of its steps after the first ones, and those of waiting."""
    waits: list[float] = []
    overrides = [*MEMBERS, f"train.num_steps={STEPS}", f"train.save_every={save_every}"]
    timed = functools.partial(_timed_batches, pipeline.make_batches, waits)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(pipeline, "make_batches", timed),
    ):
        train_sweep(demo.configs[0], Path(folder), overrides)
        run = min(path.parent for path in Path(folder).glob("*/metrics.jsonl"))
        seconds = {row["step"]: row["seconds"] for row in RunDirectory(run).read_metrics()}
    return seconds[STEPS] - seconds[SKIPPED], sum(waits[SKIPPED:])


def _timed_batches(make_batches: Callable, waits: list[float], *args, **kwargs) -> Iterator[dict]:
    batches = make_batches(*args, **kwargs)
    for _ in itertools.count():
        start = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - start)
        yield batch
