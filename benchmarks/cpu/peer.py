"""A training step beside torch's, where torch is there."""

import importlib.util
from collections.abc import Iterator

from benchmarks import train_step
from benchmarks.pieces import Setting
from benchmarks.record import Result


def measure(setting: Setting) -> Iterator[Result | str]:
    """`benchmarks.train_step`, whose sizes and settings these are."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            yield f"{name} is not installed: no comparison with it (make test-hf installs it)"
            return
    for name, config in train_step.shapes().items():
        seconds = train_step.measure(config, setting.rounds)
        yield Result.of_seconds(
            name,
            "our step's time over torch's",
            seconds["ours"],
            seconds["theirs"],
            at_most=1 / 1.2,
            measured={f"ms, {side}": 1e3 * min(took) for side, took in seconds.items()},
        )
