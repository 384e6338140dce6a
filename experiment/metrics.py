"""metrics.jsonl first; the progress line and dashboards are made from the same rows."""

import importlib
import json
import os
from collections.abc import Sequence
from typing import Any

import jax

from data.files import write_atomically
from experiment.config import ExperimentConfig
from experiment.run import RunDirectory
from model.transformer import count_params

# Dense bfloat16 peak of a chip in FLOP/s, from the makers' data sheets (sparsity not counted).
PEAK_FLOPS = {
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
    "B200": 2250e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


def peak_flops() -> float | None:
    """Of all devices together, or None where the chip (a CPU, say) is not in the table."""
    kind = jax.devices()[0].device_kind
    matches = [name for name in PEAK_FLOPS if name in kind]
    return PEAK_FLOPS[max(matches, key=len)] * jax.device_count() if matches else None


def flops_per_token(config: ExperimentConfig) -> float:
    """Of a training step: 6 per matrix parameter, plus causal attention counted once.

    Attention costs 2 FLOP x (T / 2 keys on average) for each feature of a head's keys and values,
    three times over for forward and backward; the masked half of the square is not counted.
    """
    model = config.model
    value_dim = model.head_dim if model.mla is None else model.mla.v_head_dim
    features = model.num_layers * model.num_heads * (model.head_dim + value_dim)
    attention = 3 * features * config.data.context_length
    return 6 * count_params(model)["matmul"] + attention


class MetricsLog:
    """Appends rows to a run's metrics.jsonl, and to the dashboards the config asks for."""

    def __init__(self, run: RunDirectory, config: ExperimentConfig, *, after_step: int):
        """Drops rows past `after_step`: a resumed run writes them again, the same."""
        # A run that was killed may have logged steps that no checkpoint holds.
        rows = [row for row in run.read_metrics() if row["step"] <= after_step]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(run.metrics_path, text)
        self._file = run.metrics_path.open("a", encoding="utf-8")
        self._trackers = [_TRACKERS[name](run, config) for name in config.train.tracking]

    def write(self, row: dict[str, Any]) -> None:
        """Appends one row; numbers that are not finite become null (JSON has no NaN)."""
        clean = {
            key: None if isinstance(value, float) and not _is_finite(value) else value
            for key, value in row.items()
        }
        self._file.write(json.dumps(clean) + "\n")
        self._file.flush()
        for tracker in self._trackers:
            tracker(clean)

    def sync(self) -> None:
        """Puts what was written on disk: a checkpoint must not outlive its metrics."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _is_finite(value: float) -> bool:
    return value - value == 0


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in row.items() if isinstance(value, int | float)}


def _tensorboard(run: RunDirectory, config: ExperimentConfig):
    tensorboard = importlib.import_module("tensorboardX")  # the `tracking` extra
    writer = tensorboard.SummaryWriter(str(run.path / "tensorboard"))

    def write(row: dict[str, Any]) -> None:
        for key, value in _numbers(row).items():
            writer.add_scalar(key, value, row["step"])
        writer.flush()

    return write


def _wandb(run: RunDirectory, config: ExperimentConfig):
    wandb = importlib.import_module("wandb")  # the `tracking` extra

    # The directory is the run's identity, so that a resumed run continues its curves.
    identity = str(run.path).strip("/").replace("/", "-")
    session = wandb.init(
        project="ropewalk", name=run.name, id=identity, resume="allow", reinit="create_new"
    )
    return lambda row: session.log(_numbers(row), step=row["step"])


_TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb}


def check_trackers(names: Sequence[str]) -> None:
    """Raises ValueError, naming the extra to install, if a tracker's package is missing."""
    for name, module in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
        if name in names:
            try:
                importlib.import_module(module)
            except ImportError:
                raise ValueError(
                    f"train.tracking={name} needs {module}: pip install 'ropewalk[tracking]'"
                ) from None
