"""The share of the machine's matrix products that a training step reaches."""

from collections.abc import Iterator

from benchmarks import machine, shapes
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import Sweep, alternate
from experiment.config import ExperimentConfig
from model.transformer import count_params


def measure(setting: Setting) -> Iterator[Result]:
    """Of the demo, 10M and 30M parameters."""
    for name, config in shapes.on_cpu().items():
        yield share(name, config, setting.rounds)


def share(name: str, config: ExperimentConfig, rounds: int) -> Result:
    """Model FLOP/s of a step over FLOP/s of square float32 products, in turn."""
    size = machine.MATMUL_SIZES[-1]
    seconds = alternate(
        {
            "step": Sweep([config]).updates(),
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
