"""Growth of a step's time with the length of rows, beside the growth of its model FLOPs."""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import shapes
from benchmarks.record import Result, format_value
from benchmarks.suite import Setting
from benchmarks.timing import TrainStep, alternate
from configs import small
from configs.changes import change
from experiment.config import ExperimentConfig

LENGTHS = (256, 1024, 4096, 16_384, 32_768)
TOKENS = 4096  # per step, if rows are shorter


def measure(setting: Setting) -> Iterator[Result | str]:
    """Yield each length beside rows of 256 tokens; rows above 16k tokens are timed once."""
    lengths = [max(16, int(length * setting.scale)) for length in LENGTHS]
    shortest, *longer = (_config(length) for length in lengths)
    reference = TrainStep(shortest).make_update()
    for config in longer:
        length = config.data.context_length
        rounds = 1 if length > 4 * TOKENS else setting.rounds
        seconds = _time(TrainStep(config).make_update(), reference, rounds, setting)
        fastest, reference_fastest = map(min, seconds.values())
        growth = shapes.flops(config) / shapes.flops(shortest)
        yield Result.from_seconds(
            f"rows of {length:,} tokens",
            f"seconds a FLOP over those at {lengths[0]}",
            seconds,
            1 / growth,
            measured={
                "tokens/s": shapes.tokens(config) / fastest,
                "expected by FLOPs": shapes.tokens(config) / (reference_fastest * growth),
                "rounds": len(seconds["long"]),
            },
        )
        rate = shapes.tokens(shortest) / reference_fastest
    yield f"rows of {lengths[0]}: {format_value(rate)} tokens/s"


def _config(length: int) -> ExperimentConfig:
    """Return `small` with one layer, on rows of `length` tokens."""
    data = dict(context_length=length, batch_size=max(1, TOKENS // length))
    return change(small.configs[0], model=dict(num_layers=1), data=data)


def _time(
    update: Callable[[], Any], reference: Callable[[], Any], rounds: int, setting: Setting
) -> dict[str, list[float]]:
    """Return seconds of rounds, fewer if time is short; a minute is left for the longest rows.

    Programs are compiled already, so that no update is spent on warming up.
    """
    functions = {"long": update, "short": reference}
    seconds = alternate(functions, 1, warm_up=False)
    for _ in range(rounds - 1):
        if not setting.has_time(60 + 2 * sum(times[-1] for times in seconds.values())):
            break
        for name, times in alternate(functions, 1, warm_up=False).items():
            seconds[name] += times
    return seconds
