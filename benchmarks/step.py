"""Training step: tokens/s, shares of the chip's peak and of its matrix products, and memory."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from benchmarks import machine, shapes
from benchmarks.record import Result
from benchmarks.shapes import Fitting, Shape
from benchmarks.suite import Setting
from benchmarks.timing import TrainStep, alternate, repeat
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
        return repeat(machine.matmul(self.size, self.dtype), self.count)


PRODUCTS = {
    "cpu": Products("float32", machine.MATMUL_SIZES[-1], count=1, steps=1),
    "gpu": Products("bfloat16", 8192, count=10, steps=3),
}


class Run(NamedTuple):
    """Timings of one fitting, in seconds of a round."""

    fitting: Fitting
    program: TrainStep
    seconds: dict[str, list[float]]


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield the results of every shape."""
    if setting.device != "cpu" and peak_of(kind := jax.devices()[0].device_kind) is None:
        yield f"{kind!r} has no known peak: no MFU, only shares of its matrix products"
    for name, shape in shapes.train_shapes(setting.device, setting.scale).items():
        yield from measure_shape(name, shape, setting)


def measure_shape(name: str, shape: Shape, setting: Setting) -> Iterator[Result | str]:
    """Yield the results of the fastest fitting, and a note for each alternative."""
    products = PRODUCTS[setting.device]
    if setting.dry:
        products = products._replace(size=256)
    best: Run | None = None
    for fitting in shape.fittings:
        label = f"{name}: {fitting.rows} rows, remat={fitting.remat}"
        if best and not setting.has_time(ENOUGH):
            yield f"{label}: no time was left"
            continue
        run = _run(shape, fitting, products, setting.rounds)
        if isinstance(run, str):
            yield f"{label}: {run}"
            continue
        if len(shape.fittings) > 1:
            gib = run.program.planned_bytes / 2**30
            yield f"{label}: {_rate(run, products):,.0f} tokens/s, {gib:.1f} GiB"
        if best is None or _rate(run, products) > _rate(best, products):
            best = run
    if best:
        yield from _results(name, shape, best, products)


def _run(shape: Shape, fitting: Fitting, products: Products, rounds: int) -> Run | str:
    """Return the timings, or the reason why there are none."""
    config = shape.fitted(fitting)
    # Short steps are cheap and vary more.
    rounds *= 4 if shapes.flops(config) < products.flops else 1
    try:
        program = TrainStep(config)
        if not program.fits:
            return f"{program.planned_bytes / 2**30:.1f} GiB do not fit"
        step = repeat(program.make_update(), products.steps)
        return Run(fitting, program, alternate({"step": step, "product": products.make()}, rounds))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return "did not fit into memory"


def _rate(run: Run, products: Products) -> float:
    """Return the tokens/s of the fastest round."""
    return products.steps * shapes.tokens(run.program.members[0]) / min(run.seconds["step"])


def _results(name: str, shape: Shape, run: Run, products: Products) -> Iterator[Result]:
    config, seconds = run.program.members[0], run.seconds
    device = jax.devices()[0]
    flops, fastest = products.steps * shapes.flops(config), min(seconds["step"])
    measured = {
        "M parameters": count_params(config.model)["total"] / 1e6,
        "tokens": shapes.tokens(config),
        "rows": run.fitting.rows,
        "ms a step": 1e3 * fastest / products.steps,
        "tokens/s": _rate(run, products),
        "GFLOP/s": flops / fastest / 1e9,
        "GiB planned": run.program.planned_bytes / 2**30,
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
