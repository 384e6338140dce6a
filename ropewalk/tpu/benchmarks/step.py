"""Training step: tokens/s, shares of the chip's peak and of its matrix products, and memory."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from ropewalk.experiment.cost import peak_of
from ropewalk.experiment.devices import planned_bytes
from ropewalk.model.transformer import count_params
from ropewalk.tpu.benchmarks import shapes
from ropewalk.tpu.benchmarks.program import TrainStep
from ropewalk.tpu.benchmarks.protocol import Setting, alternate, is_out_of_memory, timed


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


def measure(setting: Setting) -> Iterator[str]:
    """Yield a row of the table for every shape, or a note if it does not fit; then the rates."""
    products, kind = PRODUCTS[setting.device], jax.devices()[0].device_kind
    if setting.dry:
        products = products._replace(size=256)
    yield "| model | M parameters | rows of tokens | ms | tokens/s | MFU | of products | GiB |"
    yield "|---|---|---|---|---|---|---|---|"
    rates = []
    for name, config in shapes.train_shapes(setting.device, setting.dry).items():
        try:
            program = TrainStep(config)
            step, product = _seconds(program, products, setting.rounds)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            yield f"{name}: does not fit into memory"
            continue
        flops, peak = shapes.flops(config), peak_of(kind)
        mfu = flops / step / peak if peak else None
        share = flops / step / (2 * products.size**3 / product)
        count, length = count_params(config.model), config.data.context_length
        yield (
            f"| {name} | {count['total'] / 1e6:.4g} | {config.data.batch_size} of {length} "
            f"| {1e3 * step:.4g} | {shapes.tokens(config) / step:,.0f} "
            f"| {f'{mfu:.0%}' if mfu else 'none'} | {share:.2f} "
            f"| {planned_bytes(program.compiled) / 2**30:.1f} |"
        )
        chip = kind if setting.device == "gpu" else "cpu"
        rates.append(
            f'[[measured]]\nchip = "{chip}"\nparameters = {count["matmul"]}\n'
            f"context_length = {length}\nshare = {mfu or share:.3f}\n"
        )
    yield "Rows of ropewalk/experiment/rates.toml, from which costs are computed:"
    yield from rates


def _seconds(program: TrainStep, products: Products, rounds: int) -> tuple[float, float]:
    """Return the shortest seconds of a step and of a product, which alternate."""
    step = timed(program.make_update(), products.steps)
    seconds = alternate({"product": products.make(), "step": step}, rounds)
    return min(seconds["step"]) / products.steps, min(seconds["product"]) / products.count
