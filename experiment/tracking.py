"""Dashboards beside metrics.jsonl, from packages of the `tracking` extra."""

import contextlib
import importlib
import netrc
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from experiment.run import RunDirectory
from utils.files import write_atomically
from utils.paths import in_bucket

# Takes a row of metrics.jsonl without what is not finite.
Tracker = Callable[[dict[str, float]], None]


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


def open_tracker(name: str, run: RunDirectory) -> Tracker:
    """Open the tracker of a name in `train.tracking` for a run."""
    module, open_on = _TRACKERS[name]
    return open_on(importlib.import_module(module), run)


def _tensorboard(tensorboard: Any, run: RunDirectory) -> Tracker:
    writer = tensorboard.SummaryWriter(str(run.path / "tensorboard"))

    def write(row: dict[str, float]) -> None:
        for key, value in row.items():
            writer.add_scalar(key, value, row["step"])
        writer.flush()

    return write


def _wandb(wandb: Any, run: RunDirectory) -> Tracker:
    mode = None
    # Without a key, wandb would wait for minutes.
    if not os.environ.get("WANDB_MODE") and not _has_wandb_key():
        mode = "offline"
        print(
            f"wandb: no key here (`wandb login` or WANDB_API_KEY); it writes to {run.path}/wandb "
            "only, from where `wandb sync` brings it online",
            file=sys.stderr,
        )
    session = wandb.init(
        project="ropewalk",
        name=run.name,
        id=_identity(run),
        dir=None if in_bucket(run.path) else str(run.path),
        mode=mode,
        resume="allow",
        reinit="create_new",
    )
    return lambda row: session.log(row, step=row["step"])


def _has_wandb_key() -> bool:
    """Return whether wandb would find a key, in the environment or where `wandb login` keeps it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    netrc_path = os.environ.get("NETRC")
    for path in [Path(netrc_path)] if netrc_path else [Path("~/.netrc"), Path("~/_netrc")]:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if netrc.netrc(path.expanduser()).authenticators(host):
                return True
    return False


def _identity(run: RunDirectory) -> str:
    """Return the id of a run at wandb, drawn once and stored in the run, so that it resumes there.

    The path of a run is not unique: another clone may have it too.
    """
    path = run.path / "wandb.id"
    if not path.exists():
        write_atomically(path, secrets.token_hex(8))
    return path.read_text(encoding="utf-8")


_TRACKERS = {"tensorboard": ("tensorboardX", _tensorboard), "wandb": ("wandb", _wandb)}
