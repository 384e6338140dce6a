"""A capture beside a plain forward pass of the same rows, both in float32."""

import dataclasses
import functools
import time

import jax
import numpy as np

from benchmarks.timing import alternate, compare
from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import transformer
from model.positions import position_table
from probes import capture

SHAPES = {
    "demo, 256 rows of 128": ("demo", 256, 128),
    "demo, a row of 4,096": ("demo", 1, 4096),
    "base_30m, 4 rows of 1,024": ("base_30m", 4, 1024),
}


def main(rounds: int) -> None:
    """Prints CPU time, which other jobs change less, and the ratio."""
    for name, (config_name, B, T) in SHAPES.items():
        config = find_config(config_name)
        config = change(config, data=dict(context_length=T))
        run = LoadedRun(RunDirectory("nowhere"), 0, config, transformer.init(config.model, 0))
        model = dataclasses.replace(config.model, compute_dtype="float32", remat="none")
        tokens_BT = np.random.default_rng(0).integers(0, model.vocab_size, (B, T)).astype(np.int32)
        positions_BT = np.tile(np.arange(T, dtype=np.int32), (B, 1))
        given = position_table(model, T), tokens_BT, positions_BT, np.ones_like(tokens_BT)
        forward = jax.jit(functools.partial(transformer.hidden, model))

        def plain(forward=forward, run=run, given=given):
            with jax.default_matmul_precision("highest"):
                return forward(run.params, *given)

        def looked(run=run, tokens_BT=tokens_BT):
            inside = capture(run, tokens_BT)
            return inside.activations, inside.hidden_BTD

        print(name)
        compare(alternate({"capture": looked, "forward": plain}, rounds, time.process_time))
