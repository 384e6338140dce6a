"""What saving, and waiting for input, take from the training loop."""

import contextlib
import functools
import io
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from benchmarks.pieces import Setting
from benchmarks.record import Result
from configs import demo
from data import pipeline
from experiment.mesh import device_per_core
from experiment.run import RunDirectory
from training.sweep import train_sweep

STEPS, EVERY, SKIPPED = 120, 25, 20  # steps of a run, between its saves, before the clock counts
MEMBERS = ("model.rotary.base=10,100", "model.num_heads=4", "seed=0")
MINUTE = 60


def measure(setting: Setting) -> Iterator[Result]:
    """Two members of the demo, with saves and without, by turns through the loop itself."""
    device_per_core()  # as sweep.py does
    (config,) = demo.configs
    runs = {"with": EVERY, "without": STEPS}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    waited = []
    for number in range(min(setting.rounds, 3) + 1):
        for name, every in runs.items():
            seconds, waiting = train(config, every)
            if number:  # the first one compiled
                taken[name].append(seconds)
                waited.append(waiting / seconds)
    num_saves = len(range(EVERY, STEPS, EVERY))
    each = [(a - b) / num_saves for a, b in zip(taken["with"], taken["without"], strict=True)]
    least = (min(taken["with"]) - min(taken["without"])) / num_saves
    yield Result(
        name="a save a minute, two members of the demo",
        ratio="time with saves over time without",
        least=1 + least / MINUTE,
        median=1 + statistics.median(each) / MINUTE,
        at_most=1.01,
        measured={"ms a save of both": 1e3 * statistics.median(each)},
    )
    yield Result(
        name="waiting for input",
        ratio="time the loop waits for rows over time of its steps",
        least=min(waited),
        median=statistics.median(waited),
        at_most=0.02,
        measured={"ms a step": 1e3 * min(taken["without"]) / (STEPS - SKIPPED)},
    )


def train(config, save_every: int) -> tuple[float, float]:
    """Seconds of the steps of a sweep but the first ones, and of these spent on input."""
    waits: list[float] = []
    given = [*MEMBERS, f"train.num_steps={STEPS}", f"train.save_every={save_every}"]
    timed = functools.partial(_timed, pipeline.make_batches, waits)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(pipeline, "make_batches", timed),
    ):
        train_sweep(config, Path(folder), given, command="")
        first, *_ = sorted(path.parent for path in Path(folder).glob("*/metrics.jsonl"))
        rows = {row["step"]: row["seconds"] for row in RunDirectory(first).read_metrics()}
    return rows[STEPS] - rows[SKIPPED], sum(waits[SKIPPED:])


def _timed(make, waits: list[float], *given, **more) -> Iterator[dict]:
    batches = make(*given, **more)
    for _ in itertools.count():
        start = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - start)
        yield batch
