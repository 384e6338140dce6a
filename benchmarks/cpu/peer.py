"""A training step beside torch's, where torch is there."""

import importlib.util
from collections.abc import Iterator

from benchmarks import train_step
from benchmarks.pieces import Setting
from benchmarks.record import Result

GOAL = 1.2
ENOUGH = 40  # seconds that a shape may take, torch.compile's included


def measure(setting: Setting) -> Iterator[Result | str]:
    """`benchmarks.train_step`, whose sizes and settings these are."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            yield f"{name} is not installed: no comparison with it (make test-hf installs it)"
            return
    for name in train_step.shapes():
        if not setting.has(ENOUGH):
            yield f"{name}: no time was left"
            continue
        seconds = train_step.measure(name, setting.rounds)
        ours = seconds.pop("ours")
        for side, theirs in seconds.items():
            yield Result.of_seconds(
                name + side.removeprefix("theirs"),
                "torch's time of a step over ours",
                theirs,
                ours,
                at_least=GOAL,
                measured={"ms, torch's": 1e3 * min(theirs), "ms, ours": 1e3 * min(ours)},
            )
