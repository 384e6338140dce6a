"""A training step's tokens/s, shares of the chip's peak and of its matrix products, and memory."""

import statistics
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks import shapes
from benchmarks.gpu.fitting import Program, compile_step, fitted
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.shapes import Fitting, Shape
from benchmarks.timing import alternate
from experiment.config import ExperimentConfig
from experiment.metrics import peak_of

STEPS = 3  # in turn with products
ENOUGH = 90  # seconds that a program may take to compile and run


def measure(setting: Setting) -> Iterator[Result | str]:
    """Of each shape the fastest of the ways to fit it into memory."""
    kind = jax.devices()[0].device_kind
    peak = peak_of(kind)
    size, product = ceiling(setting)
    if peak is None:
        yield f"no peak is known of {kind!r}: no MFU, shares are of its matrix products"
    for name, shape in shapes.on_gpu(setting.scale).items():
        best: tuple[Program, Fitting, dict[str, list[float]]] | None = None
        for tried in shape.tried:
            if best and not setting.has(ENOUGH):
                yield f"{name}: no time was left for {tried}"
                continue
            config = fitted(shape.config, tried)
            program = compile_step(config)
            label = f"{name}: {tried.rows} rows, remat={tried.remat}"
            if not program.fits:
                yield f"{label}: {program.bytes / 2**30:.1f} GiB do not fit"
                continue
            seconds = alternate(
                {"step": repeated(program.updates()), "product": product}, setting.rounds
            )
            rate = STEPS * shapes.tokens(config) / min(seconds["step"])
            yield f"{label}: {rate:,.0f} tokens/s, {program.bytes / 2**30:.1f} GiB"
            if best is None or rate > _rate(best):
                best = program, tried, seconds
        if best:
            yield from _results(name, shape, best, 2 * size**3, peak)


def repeated(update: Callable) -> Callable:
    """Several updates, none waited for but the last: as the loop has them."""
    return lambda: [update() for _ in range(STEPS)]


def ceiling(setting: Setting) -> tuple[int, Callable]:
    """A bfloat16 product of square matrices, as large as the layers' at least: its side, and it."""
    size = 256 if setting.dry else 8192
    keys = jax.random.split(jax.random.key(0))
    left, right = (jax.random.normal(key, (size, size), jnp.bfloat16) for key in keys)
    product = jax.jit(lambda left, right: left @ right)
    return size, lambda: product(left, right)


def _rate(best) -> float:
    program, _, seconds = best
    return STEPS * shapes.tokens(program.config) / min(seconds["step"])


def _results(name: str, shape: Shape, best, product_flops: float, peak: float | None):
    program, tried, seconds = best
    config: ExperimentConfig = program.config
    flops = STEPS * shapes.flops(config)
    stats = jax.devices()[0].memory_stats() or {}
    measured = {
        "tokens/s": _rate(best),
        "rows": tried.rows,
        "tokens a row": config.data.context_length,
        "ms a step": 1e3 * min(seconds["step"]) / STEPS,
        "GiB planned": program.bytes / 2**30,
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
