"""Capture of queries, keys and hidden states beside a forward pass of the same rows, in float32."""

import dataclasses
import functools
import time
from collections.abc import Iterator

import jax

from benchmarks.record import Result
from benchmarks.shapes import cut
from benchmarks.suite import Setting
from benchmarks.timing import alternate, random_batch
from configs import base_30m, demo
from configs.changes import change
from experiment.config import ExperimentConfig
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import transformer
from probes import capture

SHAPES = {
    "demo, 256 rows of 128": (demo, 256, 128),
    "demo, a row of 4,096": (demo, 1, 4096),
    "base_30m, 4 rows of 1,024": (base_30m, 4, 1024),
}


def measure(setting: Setting) -> Iterator[Result]:
    """Yield ratios of CPU time, which other jobs change less than elapsed time."""
    for name, (module, B, T) in SHAPES.items():
        data = dict(context_length=T, batch_size=B)
        seconds = _time(cut(change(module.configs[0], data=data), setting.scale), setting.rounds)
        yield Result.from_seconds(
            name, "time of a capture over a forward pass", seconds, at_most=2.0
        )


def _time(config: ExperimentConfig, rounds: int) -> dict[str, list[float]]:
    run = LoadedRun(RunDirectory("nowhere"), 0, config, transformer.init(config.model, 0))
    model = dataclasses.replace(config.model, compute_dtype="float32", remat="none")
    batch = random_batch(config)
    inputs = [batch[name] for name in ("tokens", "positions", "segment_ids")]
    table = model.position_table(config.data.context_length)
    hidden = jax.jit(functools.partial(transformer.hidden, model))

    def forward():
        with jax.default_matmul_precision("highest"):
            return hidden(run.params, table, *inputs)

    def look():
        inside = capture(run, batch["tokens"])
        return inside.activations, inside.hidden_BTD

    return alternate({"capture": look, "forward": forward}, rounds, time.process_time)
