"""Sweeps beside as many single runs."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import shapes
from benchmarks.program import TrainStep, memory_errors
from benchmarks.protocol import Result, Setting, alternate, start, timed
from experiment.mesh import device_per_core
from model.transformer import count_params

# The counts of members, and steps per round, by device and shape.
COUNTS = {
    "cpu": {"demo": (2, 4, 8), "10M": (4,)},
    "gpu": dict.fromkeys(("10M", "demo", "30M"), (8, 2, 4, 16)),
}
STEPS = {"cpu": {"demo": 10, "10M": 2}, "gpu": dict.fromkeys(("10M", "demo", "30M"), 10)}
GOALS = {("cpu", "demo"): 1.0, ("cpu", "10M"): 1.0, ("gpu", "10M", 8): 0.5}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield a result for each shape and number of members."""
    for name, counts in COUNTS[setting.device].items():
        with _start(setting, name, 1) as single:
            for count in counts:
                try:
                    with memory_errors(), _start(setting, name, count) as sweep:
                        functions = {"sweep": sweep, "single": single}
                        seconds = alternate(functions, setting.rounds)
                except MemoryError:
                    yield f"{name}: {count} members do not fit into memory"
                    continue
                yield _result(setting, name, count, seconds)


def _start(
    setting: Setting, name: str, count: int
) -> contextlib.AbstractContextManager[Callable[[], float]]:
    """Start a sweep: on CPUs in its own process, which has one device per core if count > 1."""
    arguments = (setting.device, setting.dry, name, count)
    if setting.device == "cpu":
        return start("benchmarks.members:make_round", *arguments)
    return contextlib.nullcontext(timed(make_round(*arguments)))


def make_round(device: str, dry: bool, name: str, count: int) -> Callable[[], Any]:
    """Return a function that makes the steps of a round with `count` members."""
    if device == "cpu" and count > 1:
        device_per_core()
    update = TrainStep(*[shapes.sweep_shapes(device, dry)[name]] * count).make_update()
    return lambda: [update() for _ in range(STEPS[device][name])]


def _result(setting: Setting, name: str, count: int, seconds: dict[str, list[float]]) -> Result:
    device = setting.device
    config = shapes.sweep_shapes(device, setting.dry)[name]
    tokens = STEPS[device][name] * shapes.tokens(config)
    return Result.from_seconds(
        f"{name}, {count} members",
        f"a sweep's step over {count} steps of single runs",
        seconds,
        1 / count,
        at_most=GOALS.get((device, name), GOALS.get((device, name, count))),
        measured={
            "M parameters": count_params(config.model)["total"] / 1e6,
            "tokens a batch": shapes.tokens(config),
            "tokens/s of all members": count * tokens / min(seconds["sweep"]),
            "of a single run": tokens / min(seconds["single"]),
        },
    )
