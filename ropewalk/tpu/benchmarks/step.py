"""Training step: tokens/s, shares of the chip's peak and of its matrix products, and memory."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.devices import planned_bytes
from ropewalk.experiment.metrics import peak_of
from ropewalk.model.transformer import count_params
from ropewalk.tpu.benchmarks import shapes
from ropewalk.tpu.benchmarks.program import TrainStep
from ropewalk.tpu.benchmarks.protocol import Result, Setting, alternate, is_out_of_memory, timed


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

    def make(self) -> Callable[[], float]:
        """Return a function that computes the products of a round and returns the seconds."""
        left = right = jax.random.normal(jax.random.key(0), (self.size, self.size), self.dtype)
        product = jax.jit(lambda left, right: left @ right)
        return timed(lambda: product(left, right), self.count)


PRODUCTS = {
    "cpu": Products("float32", 2048, count=1, steps=1),
    "gpu": Products("bfloat16", 8192, count=10, steps=3),
}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield a result for every shape, or a note if it does not fit."""
    products = PRODUCTS[setting.device]
    if setting.dry:
        products = products._replace(size=256)
    for name, config in shapes.train_shapes(setting.device, setting.dry).items():
        try:
            yield _measure(name, config, products, setting.rounds)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            yield f"{name}: does not fit into memory"


def _measure(name: str, config: ExperimentConfig, products: Products, rounds: int) -> Result:
    program, flops = TrainStep(config), products.steps * shapes.flops(config)
    product_flops = products.count * 2 * products.size**3
    # Short steps are cheap and vary more.
    rounds *= 4 if shapes.flops(config) < product_flops else 1
    step = timed(program.make_update(), products.steps)
    seconds = alternate({"product": products.make(), "step": step}, rounds)
    shortest = min(seconds["step"])
    measured = {
        "M parameters": count_params(config.model)["total"] / 1e6,
        "tokens": shapes.tokens(config),
        "rows": config.data.batch_size,
        "ms a step": 1e3 * shortest / products.steps,
        "tokens/s": products.steps * shapes.tokens(config) / shortest,
        "GFLOP/s": flops / shortest / 1e9,
        "GiB planned": planned_bytes(program.compiled) / 2**30,
    }
    if peak := peak_of(jax.devices()[0].device_kind):
        measured["of the chip's dense bfloat16 peak (MFU)"] = flops / shortest / peak
    ratio = "model FLOP/s of a step over FLOP/s of products"
    return Result.from_seconds(name, ratio, seconds, flops / product_flops, measured)
