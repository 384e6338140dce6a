"""Sweeps beside as many single runs."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import processes, shapes
from benchmarks.record import Result
from benchmarks.suite import Setting
from benchmarks.timing import TrainStep, alternate, memory_errors, repeat
from experiment.mesh import device_per_core
from model.transformer import count_params

# The counts of members, and steps per round (a tenth of a second at least), by device and shape.
COUNTS = {
    "cpu": {"demo": (2, 4, 8), "10M": (4,)},
    "gpu": dict.fromkeys(("10M", "demo", "30M"), (8, 2, 4, 16)),
}
STEPS = {"cpu": {"demo": 4, "10M": 1}, "gpu": dict.fromkeys(("10M", "demo", "30M"), 5)}
GOALS = {("cpu", "demo"): 1.0, ("cpu", "10M"): 1.0, ("gpu", "10M", 8): 0.5}
ENOUGH = 45  # seconds that a program may take to compile and run


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield a result for each shape and number of members."""
    for name, counts in COUNTS[setting.device].items():
        if not setting.has_time(2 * ENOUGH):
            yield f"{name}: no time was left"
            continue
        with _start(setting, name, 1) as single:
            for count in counts:
                if not setting.has_time(ENOUGH):
                    yield f"{name}: no time was left for {count} members"
                    continue
                try:
                    with memory_errors(), _start(setting, name, count) as sweep:
                        functions = {"sweep": sweep, "single": single}
                        seconds = alternate(functions, setting.rounds)
                except MemoryError:
                    yield f"{name}: {count} members do not fit into memory"
                    continue
                yield _result(setting, name, count, seconds)


def _start(setting: Setting, name: str, count: int) -> contextlib.AbstractContextManager[Callable]:
    """Start a sweep: on CPUs in its own process, which has one device per core if count > 1."""
    arguments = (setting.device, setting.dry, name, count)
    if setting.device == "cpu":
        return processes.start("benchmarks.members:make_round", *arguments)
    return contextlib.nullcontext(make_round(*arguments))


def make_round(device: str, dry: bool, name: str, count: int) -> Callable[[], Any]:
    """Return a function that makes the steps of a round with `count` members."""
    if device == "cpu" and count > 1:
        device_per_core()
    config = shapes.sweep_shapes(device, dry)[name]
    return repeat(TrainStep(*[config] * count).make_update(), STEPS[device][name])


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
