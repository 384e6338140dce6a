"""Sweeps beside as many single runs."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ropewalk.experiment.devices import device_per_core
from ropewalk.model.transformer import count_params
from ropewalk.tpu.benchmarks import shapes
from ropewalk.tpu.benchmarks.program import TrainStep
from ropewalk.tpu.benchmarks.protocol import (
    Result,
    Setting,
    alternate,
    is_out_of_memory,
    start,
    timed,
)

# The counts of members, and steps per round, by device and shape.
COUNTS = {
    "cpu": {"demo": (2, 4, 8), "10M": (4,)},
    "gpu": dict.fromkeys(("10M", "demo", "30M"), (8, 2, 4, 16)),
}
STEPS = {"cpu": {"demo": 10, "10M": 2}, "gpu": dict.fromkeys(("10M", "demo", "30M"), 10)}


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield a result for each shape and number of members."""
    for name, counts in COUNTS[setting.device].items():
        with _start(setting, name, 1) as single:
            for count in counts:
                try:
                    with _start(setting, name, count) as sweep:
                        seconds = alternate({"sweep": sweep, "single": single}, setting.rounds)
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    yield f"{name}: {count} members do not fit into memory"
                    continue
                yield _result(setting, name, count, seconds)


def _start(
    setting: Setting, name: str, count: int
) -> contextlib.AbstractContextManager[Callable[[], float]]:
    """Start a sweep: on CPUs in its own process, which has one device per core if count > 1."""
    arguments = (setting.device, setting.dry, name, count)
    if setting.device == "cpu":
        return start("ropewalk.tpu.benchmarks.members:make_round", *arguments)
    return contextlib.nullcontext(timed(make_round(*arguments)))


def make_round(device: str, dry: bool, name: str, count: int) -> Callable[[], Any]:
    """Return a function that makes the steps of a round with `count` members."""
    if device == "cpu" and count > 1:
        device_per_core()
    update = TrainStep(*[shapes.sweep_shapes(device, dry)[name]] * count).make_update()
    return lambda: [update() for _ in range(STEPS[device][name])]


def _result(setting: Setting, name: str, count: int, seconds: dict[str, list[float]]) -> Result:
    config = shapes.sweep_shapes(setting.device, setting.dry)[name]
    tokens = STEPS[setting.device][name] * shapes.tokens(config)
    measured = {
        "M parameters": count_params(config.model)["total"] / 1e6,
        "tokens a batch": shapes.tokens(config),
        "tokens/s of all members": count * tokens / min(seconds["sweep"]),
        "of a single run": tokens / min(seconds["single"]),
    }
    ratio = f"a sweep's step over {count} steps of single runs"
    return Result.from_seconds(f"{name}, {count} members", ratio, seconds, 1 / count, measured)
