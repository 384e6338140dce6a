"""The share of the machine's matrix products that a training step reaches."""

import functools
from collections.abc import Iterator

import jax

from benchmarks import machine, shapes
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import alternate, one_member, random_batch, updates
from experiment.config import ExperimentConfig
from model.transformer import count_params
from training.step import train_step


def measure(setting: Setting) -> Iterator[Result]:
    """Of the demo, 10M and 30M parameters."""
    for name, config in shapes.on_cpu().items():
        yield share(name, config, setting.rounds)


def share(name: str, config: ExperimentConfig, rounds: int) -> Result:
    """Model FLOP/s of a step over FLOP/s of square float32 products, in turn."""
    size = machine.MATMUL_SIZES[-1]
    step = jax.jit(functools.partial(train_step, config), donate_argnums=0)
    seconds = alternate(
        {
            "step": updates(step, *one_member(config), random_batch(config)),
            "matmul": machine.matmul(size),
        },
        # Short steps, more of them: rounds cost less, and vary more.
        rounds * (4 if shapes.flops(config) < 2 * size**3 else 1),
    )
    fastest = min(seconds["step"])
    return Result.of_seconds(
        name,
        "model FLOP/s of a step over FLOP/s of products",
        seconds["matmul"],
        seconds["step"],
        shapes.flops(config) / (2 * size**3),
        measured={
            "M parameters": count_params(config.model)["total"] / 1e6,
            "tokens": shapes.tokens(config),
            "ms a step": 1e3 * fastest,
            "tokens/s": shapes.tokens(config) / fastest,
            "GFLOP/s": shapes.flops(config) / fastest / 1e9,
        },
    )
