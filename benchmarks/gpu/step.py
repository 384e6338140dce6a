"""A training step's tokens/s, shares of the chip's peak and of its matrix products, and memory."""

import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import shapes
from benchmarks.gpu.fitting import compile_step, fitted
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.shapes import Fitting, Shape
from benchmarks.timing import alternate
from experiment.config import ExperimentConfig
from experiment.metrics import peak_of

STEPS, PRODUCTS = 3, 10  # in turn
ENOUGH = 90  # seconds that a program may take to compile and run


class Ran(NamedTuple):
    """A way to fit a shape into memory that did.

    Attributes:
      config, tried, bytes: what ran, how, and what the compiler planned.
      seconds: of STEPS steps and of a product, in turn.
    """

    config: ExperimentConfig
    tried: Fitting
    bytes: int
    seconds: dict[str, list[float]]

    @property
    def rate(self) -> float:
        """Tokens/s at best."""
        return STEPS * shapes.tokens(self.config) / min(self.seconds["step"])


def measure(setting: Setting) -> Iterator[Result | str]:
    """Of each shape the fastest of the ways to fit it into memory."""
    kind = jax.devices()[0].device_kind
    peak = peak_of(kind)
    size, product = ceiling(setting)
    if peak is None:
        yield f"no peak is known of {kind!r}: no MFU, shares are of its matrix products"
    for name, shape in shapes.on_gpu(setting.scale).items():
        best: Ran | None = None
        for tried in shape.tried:
            label = f"{name}: {tried.rows} rows, remat={tried.remat}"
            if best and not setting.has(ENOUGH):
                yield f"{label}: no time was left"
                continue
            ran = _run(fitted(shape.config, tried), tried, product, setting)
            if isinstance(ran, str):
                yield f"{label}: {ran}"
                continue
            yield f"{label}: {ran.rate:,.0f} tokens/s, {ran.bytes / 2**30:.1f} GiB"
            if best is None or ran.rate > best.rate:
                best = ran
        if best:
            yield from _results(name, shape, best, PRODUCTS * 2 * size**3, peak)


def _run(config: ExperimentConfig, tried: Fitting, product: Callable, setting: Setting):
    """What ran, or why it did not."""
    try:
        program = compile_step(config)
        needed = f"{program.bytes / 2**30:.1f} GiB"
        if not program.fits:
            return f"{needed} do not fit"
        functions = {"step": repeated(program.updates()), "product": product}
        return Ran(config, tried, program.bytes, alternate(functions, setting.rounds))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return "did not fit into memory"


def repeated(update: Callable) -> Callable:
    """Several updates, none waited for but the last: as the loop has them."""
    return lambda: [update() for _ in range(STEPS)]


def ceiling(setting: Setting) -> tuple[int, Callable]:
    """A bfloat16 product of square matrices, as large as the layers' at least: its side, and it."""
    size = 256 if setting.dry else 8192
    keys = jax.random.split(jax.random.key(0))
    left, right = (jax.random.normal(key, (size, size), jnp.bfloat16) for key in keys)
    product = jax.jit(lambda left, right: left @ right)
    return size, lambda: [product(left, right) for _ in range(PRODUCTS)]


def _results(name: str, shape: Shape, best: Ran, product_flops: float, peak: float | None):
    flops, seconds = STEPS * shapes.flops(best.config), best.seconds
    stats = jax.devices()[0].memory_stats() or {}
    measured = {
        "tokens/s": best.rate,
        "rows": best.tried.rows,
        "tokens a row": best.config.data.context_length,
        "ms a step": 1e3 * min(seconds["step"]) / STEPS,
        "GiB planned": best.bytes / 2**30,
        "GiB at most so far": stats.get("peak_bytes_in_use", 0) / 2**30,
    }
    if peak is not None:
        rates = [flops / taken for taken in seconds["step"]]
        yield Result(
            name=name,
            ratio="model FLOP/s over the chip's dense bf16 peak (MFU)",
            least=max(rates) / peak,
            median=statistics.median(rates) / peak,
            at_least=shape.mfu,
            measured=measured,
        )
    yield Result.of_seconds(
        name,
        "model FLOP/s over FLOP/s of bf16 products",
        seconds["product"],
        seconds["step"],
        flops / product_flops,
        measured=measured if peak is None else {},
    )
