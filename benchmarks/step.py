"""Training step: tokens/s, shares of the chip's peak and of its matrix products, and memory."""

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from benchmarks import limits, shapes
from benchmarks.record import Result
from benchmarks.shapes import Shape
from benchmarks.suite import Setting
from benchmarks.timing import Attempt, TrainStep, alternate, fastest, memory_errors, repeat
from experiment.config import ExperimentConfig
from experiment.metrics import peak_of
from model.transformer import count_params

ENOUGH = 90  # seconds that a program may take to compile and run


class Products(NamedTuple):
    """Square matrix products that alternate with steps.

    Attributes:
      dtype: of the matrices.
      size: rows of a matrix, at least as large as those of the layers.
      count: products per round.
      steps: steps per round.
    """

    dtype: str
    size: int
    count: int
    steps: int

    @property
    def flops(self) -> float:
        """FLOPs of a round."""
        return self.count * 2 * self.size**3

    def make(self) -> Callable[[], Any]:
        """Return a function that computes the products of a round."""
        return repeat(limits.matmul(self.size, self.dtype), self.count)


PRODUCTS = {
    "cpu": Products("float32", limits.MATMUL_SIZES[-1], count=1, steps=1),
    "gpu": Products("bfloat16", 8192, count=10, steps=3),
}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield the results of every shape."""
    if setting.device != "cpu" and peak_of(kind := jax.devices()[0].device_kind) is None:
        yield f"{kind!r} has no known peak: no MFU, only shares of its matrix products"
    for name, shape in shapes.train_shapes(setting.device, setting.dry).items():
        yield from measure_shape(name, shape, setting)


def measure_shape(name: str, shape: Shape, setting: Setting) -> Iterator[Result | str]:
    """Yield the results of the fastest fitting, and a note for each alternative."""
    products = PRODUCTS[setting.device]
    if setting.dry:
        products = products._replace(size=256)
    attempts = {
        f"{name}: {fitting.rows} rows, remat={fitting.remat}": functools.partial(
            _attempt, shape.fitted(fitting), products, setting.rounds
        )
        for fitting in shape.fittings
    }
    if best := (yield from fastest(setting, attempts, ENOUGH)):
        yield from _results(name, shape, best, products)


def _attempt(config: ExperimentConfig, products: Products, rounds: int) -> Attempt:
    # Short steps are cheap and vary more.
    rounds *= 4 if shapes.flops(config) < products.flops else 1
    with memory_errors():
        program = TrainStep(config)
        gib = f"{program.planned_bytes / 2**30:.1f} GiB"
        if not program.fits:
            raise MemoryError(f"{gib} do not fit")
        functions = {
            "step": repeat(program.make_update(), products.steps),
            "product": products.make(),
        }
        seconds = alternate(functions, rounds)
    return Attempt(seconds, products.steps * shapes.tokens(config), program, f", {gib}")


def _results(name: str, shape: Shape, best: Attempt, products: Products) -> Iterator[Result]:
    config, seconds = best.program.members[0], best.seconds
    device = jax.devices()[0]
    flops, shortest = products.steps * shapes.flops(config), min(seconds["step"])
    measured = {
        "M parameters": count_params(config.model)["total"] / 1e6,
        "tokens": shapes.tokens(config),
        "rows": config.data.batch_size,
        "ms a step": 1e3 * shortest / products.steps,
        "tokens/s": max(best.rates),
        "GFLOP/s": flops / shortest / 1e9,
        "GiB planned": best.program.planned_bytes / 2**30,
    }
    if stats := device.memory_stats():
        measured["GiB peak so far"] = stats["peak_bytes_in_use"] / 2**30
    if peak := peak_of(device.device_kind):
        rates = [flops / time / peak for time in seconds["step"]]
        yield Result(
            name=name,
            ratio="model FLOP/s over the chip's dense bf16 peak (MFU)",
            least=max(rates),
            median=statistics.median(rates),
            at_least=shape.mfu,
            measured=measured,
        )
        measured = {}
    yield Result.from_seconds(
        name,
        "model FLOP/s of a step over FLOP/s of products",
        {"product": seconds["product"], "step": seconds["step"]},
        flops / products.flops,
        measured=measured,
    )
