"""Growth of a step's time with the length of rows, beside the growth of its model FLOPs."""

from collections.abc import Iterator

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
        functions = {"long": TrainStep(config).make_update(), "short": reference}
        rounds = 1 if length > 4 * TOKENS else setting.rounds  # such a step may take a minute
        seconds = alternate(functions, rounds, warm_up=False)
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
                "rounds": rounds,
            },
        )
        rate = shapes.tokens(shortest) / reference_fastest
    yield f"rows of {lengths[0]}: {format_value(rate)} tokens/s"


def _config(length: int) -> ExperimentConfig:
    """Return `small` with one layer, on rows of `length` tokens."""
    data = dict(context_length=length, batch_size=max(1, TOKENS // length))
    return change(small.configs[0], model=dict(num_layers=1), data=data)
