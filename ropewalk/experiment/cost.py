"""FLOPs of training, and the time that they take at measured rates (`rates.toml`)."""

import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax

from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.stages import Stage
from ropewalk.model.transformer import count_params
from ropewalk.utils.messages import counted, duration


def _read(name: str) -> dict:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


# FLOP/s of a chip, by a part of its JAX device kind.
PEAK_FLOPS: dict[str, float] = _read("chips.toml")


class Rate(NamedTuple):
    """A measured rate: an entry of `rates.toml`, which explains the fields."""

    chip: str
    parameters: int
    context_length: int
    share: float


RATES = [Rate(**row) for row in _read("rates.toml")["measured"]]


def peak_flops() -> float | None:
    """Return the peak of all devices; None if the chip (a CPU, say) is not in the table."""
    peak = peak_of(jax.devices()[0].device_kind)
    return peak and peak * jax.device_count()


def peak_of(kind: str) -> float | None:
    """Return the peak of one chip by its JAX device kind; None if it is not in the table."""
    matches = [name for name in PEAK_FLOPS if name in kind]
    return PEAK_FLOPS[max(matches, key=len)] if matches else None


def flops_per_token(config: ExperimentConfig) -> float:
    """Count the FLOP of a training step: 6 per matrix parameter, plus causal attention once.

    Attention costs 2 FLOP for each feature of a head's keys and values that a query sees, three
    times over for forward and backward. A query of T sees T / 2 keys on average, or with a window
    of w tokens w - w^2 / 2T; what the mask hides is not counted.
    """
    model, T = config.model, config.data.context_length
    widths = (min(window or T, T) for window in model.windows)
    keys = sum(width - width**2 / (2 * T) for width in widths)  # of all layers
    attention = 6 * model.num_heads * (model.head_dim + model.value_dim) * keys
    return 6 * count_params(model)["matmul"] + attention


def count_flops(stages: Iterable[Stage]) -> float:
    """Count the FLOP of stages of a run."""
    return sum(stage.tokens * flops_per_token(stage.config) for stage in stages)


def nearest_rate(kind: str, config: ExperimentConfig) -> Rate:
    """Return the rate of the measured model that is nearest in size and length to a config's.

    `kind` is the JAX device kind of an accelerator, or "cpu". Rates of another chip count if none
    of this one is within a factor of e.
    """

    def distance(rate: Rate) -> float:
        size = math.log(count_params(config.model)["matmul"] / rate.parameters)
        length = math.log(config.data.context_length / rate.context_length)
        return abs(size) + abs(length) + (rate.chip not in kind)

    return min((rate for rate in RATES if (rate.chip == "cpu") == (kind == "cpu")), key=distance)


def seconds_on(kind: str, peak: float, stages: Iterable[Stage]) -> float:
    """Estimate the seconds that stages of a run take.

    Args:
      kind: as in `nearest_rate`.
      peak: FLOP/s, of which the rates are shares, of all devices.
      stages: of the run.
    """
    return sum(
        count_flops([stage]) / (peak * nearest_rate(kind, stage.config).share) for stage in stages
    )


def describe_shares(kind: str, stages: Iterable[Stage]) -> str:
    """Return the least and the greatest share of the peak that stages reach: `9% to 38%`."""
    shares = sorted(nearest_rate(kind, stage.config).share for stage in stages)
    return " to ".join(dict.fromkeys(f"{share:.0%}" for share in (shares[0], shares[-1])))


def describe_cost(runs: Iterable[Iterable[Stage]]) -> str:
    """Return a line with the FLOPs of runs and their time on one H100."""
    runs, chip = list(runs), "H100"
    stages = [stage for run in runs for stage in run]
    seconds = seconds_on(chip, PEAK_FLOPS[chip], stages)
    return (
        f"cost: {counted(len(runs), 'runs')}, {count_flops(stages):.2g} FLOPs, about "
        f"{duration(seconds)} on one {chip} at {describe_shares(chip, stages)} MFU, as measured "
        "(experiment/rates.toml); `--check` estimates it on this machine or on --devices N"
    )
