"""Training step: tokens/s, shares of the chip's peak and of its matrix products, and memory."""

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from benchmarks import shapes
from benchmarks.program import Attempt, TrainStep, fastest, memory_errors
from benchmarks.protocol import Result, Setting, alternate, timed
from benchmarks.shapes import Shape
from experiment.config import ExperimentConfig
from experiment.metrics import peak_of
from model.transformer import count_params


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

    def make(self) -> Callable[[], float]:
        """Return a function that computes the products of a round and returns the seconds."""
        keys = jax.random.split(jax.random.key(0))
        shape = (self.size, self.size)
        left, right = (jax.random.normal(key, shape, self.dtype) for key in keys)
        product = jax.jit(lambda left, right: left @ right)
        return timed(lambda: product(left, right), self.count)


PRODUCTS = {
    "cpu": Products("float32", 2048, count=1, steps=1),
    "gpu": Products("bfloat16", 8192, count=10, steps=3),
}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield the results of the fastest fitting of every shape, and a note for each alternative."""
    products = PRODUCTS[setting.device]
    if setting.dry:
        products = products._replace(size=256)
    for name, shape in shapes.train_shapes(setting.device, setting.dry).items():
        attempts = {
            f"{name}: {fitting.rows} rows, remat={fitting.remat}": functools.partial(
                _attempt, shape.fitted(fitting), products, setting.rounds
            )
            for fitting in shape.fittings
        }
        if best := (yield from fastest(attempts)):
            yield from _results(name, shape, best, products)


def _attempt(config: ExperimentConfig, products: Products, rounds: int) -> Attempt:
    # Short steps are cheap and vary more.
    rounds *= 4 if shapes.flops(config) < products.flops else 1
    with memory_errors():
        program = TrainStep(config)
        program.check_memory()
        functions = {
            "step": timed(program.make_update(), products.steps),
            "product": products.make(),
        }
        seconds = alternate(functions, rounds)
    return Attempt(seconds, products.steps * shapes.tokens(config), config, program.planned_bytes)


def _results(name: str, shape: Shape, best: Attempt, products: Products) -> Iterator[Result]:
    config, seconds = best.config, best.seconds
    flops, shortest = products.steps * shapes.flops(config), min(seconds["step"])
    measured = {
        "M parameters": count_params(config.model)["total"] / 1e6,
        "tokens": shapes.tokens(config),
        "rows": config.data.batch_size,
        "ms a step": 1e3 * shortest / products.steps,
        "tokens/s": max(best.rates),
        "GFLOP/s": flops / shortest / 1e9,
        "GiB planned": best.planned_bytes / 2**30,
    }
    if peak := peak_of(jax.devices()[0].device_kind):
        rates = [flops / time / peak for time in seconds["step"]]
        yield Result(
            name=name,
            ratio="model FLOP/s over the chip's dense bf16 peak (MFU)",
            least=max(rates),
            median=statistics.median(rates),
            at_least=shape.mfu,
        )
    yield Result.from_seconds(
        name,
        "model FLOP/s of a step over FLOP/s of products",
        {"product": seconds["product"], "step": seconds["step"]},
        flops / products.flops,
        measured=measured,
    )
