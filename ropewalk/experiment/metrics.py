"""metrics.jsonl, and dashboards from the same rows, from packages of the `tracking` extra."""

import importlib
import json
import math
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ropewalk.experiment.config import ExperimentConfig, flatten, to_dict
from ropewalk.experiment.items import read_digests
from ropewalk.experiment.records import MetricsDigest
from ropewalk.experiment.run import RunDirectory
from ropewalk.model import rotary
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import read_bytes
from ropewalk.utils.messages import print_note
from ropewalk.utils.paths import in_bucket


class MetricsLog:
    """Appends rows to a run's metrics.jsonl, and to the dashboards the config asks for."""

    def __init__(
        self,
        run: RunDirectory,
        config: ExperimentConfig,
        *,
        after_step: int,
        notice: Callable[[str], None],
    ):
        """Drop rows past `after_step`, because a resumed run writes them again.

        `notice` is called with a line if rows up to there are lost or changed.
        """
        self._trackers = [open_tracker(name, run, after_step) for name in config.train.tracking]
        # A killed run may have logged steps after its last checkpoint.
        rows = [row for row in run.read_metrics() if row["step"] <= after_step]
        record = read_digests(run, after_step).get("metrics", {}) if after_step else {}
        self._digest, self._lost_up_to = MetricsDigest(rows), record.get("lost_up_to")
        # The file contains no training state, so lost rows are no reason to stop.
        if record and (damage := self._digest.difference(record)):
            self._lost_up_to = after_step
            notice(
                f"DAMAGED: {run.metrics_path} {damage} up to step {after_step}; training goes on "
                "unchanged, and reports will say that these rows are lost"
            )
        self._path = run.metrics_path
        self._lines = [json.dumps(row) + "\n" for row in rows]
        write_atomically(self._path, "".join(self._lines))
        # A bucket has no appends: rows are written all at once.
        self._file = None if in_bucket(self._path) else self._path.open("a", encoding="utf-8")

    def write(self, row: dict[str, Any]) -> None:
        """Append one row; numbers that are not finite become null (JSON has no NaN)."""
        known = {k: x for k, x in row.items() if x is not None and math.isfinite(x)}
        logged = {key: known.get(key) for key in row}
        line = json.dumps(logged) + "\n"
        if self._file is None:
            self._lines.append(line)
        else:
            self._file.write(line)
            self._file.flush()
        self._digest.add(logged)
        for tracker in self._trackers:
            tracker.log(known)

    def record(self) -> dict[str, Any]:
        """Return the digest of all rows so far, for a checkpoint to keep."""
        return self._digest.record() | (
            {"lost_up_to": self._lost_up_to} if self._lost_up_to else {}
        )

    def sync(self) -> None:
        """Write all rows to disk: a checkpoint must not outlive its metrics."""
        if self._file is None:
            write_atomically(self._path, "".join(self._lines))
        else:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write all rows, and close the file and the dashboards."""
        self.sync()
        if self._file is not None:
            self._file.close()
        for tracker in self._trackers:
            tracker.close()


Log: TypeAlias = Callable[[dict[str, float]], None]


class Tracker(NamedTuple):
    """An open dashboard of a run. Rows have finite numbers only.

    Attributes:
      log: logs a row of metrics.jsonl.
      log_results: logs numbers of an evaluation, and the `step` of its checkpoint.
      close: writes what is left; the run may then be opened again.
    """

    log: Log
    log_results: Log
    close: Callable[[], None]


def check_trackers(names: Sequence[str]) -> None:
    """Raise ValueError, naming what to install, if the package of a tracker is missing."""
    for name in names:
        module, _ = _TRACKERS[name]
        try:
            importlib.import_module(module)
        except ImportError:
            raise ValueError(
                f"train.tracking={name} needs {module}: pip install '.[tracking]' in the folder "
                "of ropewalk"
            ) from None


def open_tracker(name: str, run: RunDirectory, after_step: int | None = None) -> Tracker:
    """Open the tracker of a name in `train.tracking` for a run.

    `after_step` is the step from which training goes on; None: rows are only added.
    """
    module, open_on = _TRACKERS[name]
    return open_on(importlib.import_module(module), run, after_step)


def _settings(run: RunDirectory) -> dict[str, bool | int | float | str]:
    """Return the fields of a run's config by dotted name, so that runs can be plotted by them."""
    fields = flatten(to_dict(run.config)) | {"rotary": rotary.label(run.config.model.rotary)}
    for number, overrides in enumerate(run.config.stages, start=1):
        fields |= {f"stage {number}: {x.partition('=')[0]}": x.partition("=")[2] for x in overrides}
    plain = {name: x for name, x in fields.items() if isinstance(x, bool | int | float | str)}
    return {name: x for name, x in plain.items() if name.rpartition(".")[2] != "class"}


def _tensorboard(tensorboard: Any, run: RunDirectory, after_step: int | None) -> Tracker:
    writer = tensorboard.SummaryWriter(
        str(run.path / "tensorboard"),
        # Files are named by the second at which they are opened.
        filename_suffix=f".{secrets.token_hex(4)}",
        # A killed run may have logged steps after its last checkpoint.
        purge_step=None if after_step is None else after_step + 1,
    )
    # Settings without a list of metrics: then TensorBoard offers all scalars of the runs.
    _, settings, _ = tensorboard.summary.hparams(_settings(run), {})
    writer.file_writer.add_summary(settings)

    def write(row: dict[str, float]) -> None:
        for key, value in row.items():
            writer.add_scalar(key, value, row["step"])
        writer.flush()

    return Tracker(write, write, writer.close)


def _wandb(wandb: Any, run: RunDirectory, after_step: int | None) -> Tracker:
    # Without a key, `init` would wait for minutes.
    is_online = os.environ.get("WANDB_MODE") or os.environ.get("WANDB_API_KEY")
    folder = run.path.resolve().parent
    session = wandb.init(
        project="ropewalk",
        group=folder.name if (folder / "sweep.json").exists() else None,
        config=_settings(run),
        name=run.name,
        id=_identity(run),
        resume="allow",
        dir=None if in_bucket(run.path) else str(run.path),
        mode=None if is_online else "offline",
        reinit="create_new",
    )

    def write_results(row: dict[str, float]) -> None:
        # `log` refuses results of steps before the last one.
        session.summary.update({name: value for name, value in row.items() if name != "step"})

    return Tracker(lambda row: session.log(row, step=row["step"]), write_results, session.finish)


def _identity(run: RunDirectory) -> str:
    """Return the id of a run at wandb, drawn once and stored in the run, so that it resumes there.

    The path of a run is not unique: another clone may have it too. A digest after the id binds the
    file to the run; older files have none.
    """
    path = run.path / "wandb.id"
    content = read_bytes(path).decode(errors="replace") if path.exists() else ""
    name, seal = content[:16], content[16:]
    if seal not in ("", run.bind(name)):
        print_note(None, f"{path} is not this run's; a new page of W&B is begun")
        name = ""
    if not (name and seal):
        name = name or secrets.token_hex(8)
        write_atomically(path, name + run.bind(name))
    return name


_TRACKERS = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "wandb": ("wandb", _wandb),
}
