"""Sweeps beside as many runs, one after another."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import shapes, timing, turns
from benchmarks.pieces import Setting
from benchmarks.record import Result
from experiment.mesh import device_per_core

MEMBERS = {"demo": (1, 2, 4, 8), "10M": (1, 4)}
STEPS = {"demo": 4, "10M": 1}  # in turn: a tenth of a second at least


def update(shape: str, num_members: int) -> Callable[[], Any]:
    """Updates of a sweep, set up as its command sets a process up; one member is as of train.py."""
    if num_members > 1:
        device_per_core()
    step = timing.Sweep([shapes.on_cpu()[shape]] * num_members).updates()
    return lambda: [step() for _ in range(STEPS[shape])]


def measure(setting: Setting) -> Iterator[Result]:
    """Each number of members in a process of its own, which is how a sweep has them."""
    for shape, steps in STEPS.items():
        tokens = shapes.tokens(shapes.on_cpu()[shape]) * steps
        with contextlib.ExitStack() as started:
            calls = {
                count: started.enter_context(
                    turns.process("benchmarks.cpu.members:update", shape, count)
                )
                for count in MEMBERS[shape]
            }
            seconds = timing.alternate(
                {str(count): call for count, call in calls.items()}, setting.rounds
            )
        for count in MEMBERS[shape][1:]:
            own = seconds[str(count)]
            yield Result.of_seconds(
                f"{shape}, {count} members",
                f"a sweep's step over {count} steps of single runs",
                own,
                seconds["1"],
                1 / count,
                at_most=1.0,
                measured={
                    "tokens/s of all members": count * tokens / min(own),
                    "of a single run": tokens / min(seconds["1"]),
                },
            )
