"""Sweeps beside as many runs, on a device that one small model does not fill."""

from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks import shapes
from benchmarks.pieces import Setting
from benchmarks.record import Result
from benchmarks.timing import Sweep, alternate
from experiment.config import ExperimentConfig
from model.transformer import count_params

MEMBERS = (8, 2, 4, 16)  # the promised one first
GOAL = {("10M", 8): 0.5}
STEPS = 5  # in turn
ENOUGH = 45  # seconds that a program may take to compile and run


def measure(setting: Setting) -> Iterator[Result | str]:
    """Each number of members in turn with a single run."""
    for name, config in shapes.sweeps_on_gpu(setting.scale).items():
        if not setting.has(2 * ENOUGH):
            yield f"{name}: no time was left"
            continue
        single = steps(config, 1)
        for count in MEMBERS:
            if not setting.has(ENOUGH):
                yield f"{name}: no time was left for {count} members"
                continue
            try:
                yield _compared(name, config, count, single, setting.rounds)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                yield f"{name}: {count} members do not fit into memory"


def steps(config: ExperimentConfig, num_members: int) -> Callable[[], Any]:
    """Updates of members by the program that the training loop compiles for them."""
    update = Sweep([config] * num_members).updates()
    return lambda: [update() for _ in range(STEPS)]


def _compared(
    name: str, config: ExperimentConfig, count: int, single: Callable[[], Any], rounds: int
) -> Result:
    seconds = alternate({"sweep": steps(config, count), "single": single}, rounds)
    tokens = STEPS * shapes.tokens(config)
    return Result.of_seconds(
        f"{name}, {count} members",
        f"a sweep's step over {count} steps of single runs",
        seconds["sweep"],
        seconds["single"],
        1 / count,
        at_most=GOAL.get((name, count)),
        measured={
            "M parameters": count_params(config.model)["total"] / 1e6,
            "tokens a batch": shapes.tokens(config),
            "tokens/s of all members": count * tokens / min(seconds["sweep"]),
            "of a single run": tokens / min(seconds["single"]),
        },
    )
