"""How a step grows with the row's length, beside the growth of its model FLOPs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks import shapes
from benchmarks.pieces import Setting
from benchmarks.record import Result, shown
from benchmarks.timing import Sweep
from configs import small
from configs.changes import change
from experiment.config import ExperimentConfig

LENGTHS = (256, 1024, 4096, 16_384, 32_768)
TOKENS = 4096  # of a step, where rows are shorter


def measure(setting: Setting) -> Iterator[Result | str]:
    """Each length beside rows of 256 tokens; the longest ones once, where time is short."""
    shortest, *longer = (_of(length) for length in LENGTHS)
    reference = _update(shortest)
    for config in longer:
        took, update, last = [], _update(config), 0.0
        rounds = 1 if config.data.context_length > 4 * TOKENS else setting.rounds
        length = config.data.context_length
        for _ in range(rounds):
            if took and not setting.has(60 + 2 * last):  # the longest rows are still to come
                break
            own, other = _seconds(update), _seconds(reference)
            took.append((own, other))
            last = own + other
        own, other = zip(*took, strict=True)
        growth = shapes.flops(config) / shapes.flops(shortest)
        rate = shapes.tokens(config) / min(own)
        yield Result.of_seconds(
            f"rows of {length:,} tokens",
            f"seconds a FLOP over those at {LENGTHS[0]}",
            own,
            other,
            1 / growth,
            measured={
                "tokens/s": rate,
                "expected by FLOPs": shapes.tokens(config) / (min(other) * growth),
                "rounds": len(took),
            },
        )
    yield f"rows of {LENGTHS[0]}: {shown(shapes.tokens(shortest) / _seconds(reference))} tokens/s"


def _of(length: int) -> ExperimentConfig:
    """`small` with one layer, on rows of so many tokens."""
    (config,) = small.configs
    data = dict(context_length=length, batch_size=max(1, TOKENS // length))
    return change(config, model=dict(num_layers=1), data=data)


def _update(config: ExperimentConfig) -> Callable[[], Any]:
    """Compiled before the clock runs: of a long row the first update counts already."""
    one = Sweep([config])
    return one.updates(one.compiled())


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start
