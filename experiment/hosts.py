"""Checks that all hosts of a run have the same code, config, JAX and working directory."""

import contextlib
import hashlib
import os
import time
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiment import distributed
from utils.paths import in_bucket

ROOT = Path(__file__).parents[1]
# A network disk shows a new file to the other hosts after some seconds, NFS after 30 (acdirmin).
_SECONDS_TO_APPEAR = 40.0
_APART = {"tests", "notebooks", "runs", "build"}


def check_alike(workdir: str | Path, config: object) -> None:
    """Check that hosts do not differ in code, config or JAX, and see one working directory.

    Args:
      workdir: directory as each host has it; the address of a bucket is the same everywhere.
      config: what each host trains; its `repr` is compared.

    Raises:
      ValueError: in all processes, naming the first that differs from process 0.
    """
    if jax.process_count() == 1:
        return
    having = {
        "code": (_code(), "put the same commit on every host"),
        "a config": (repr(config).encode(), "start all with the same command"),
        "a version of JAX": (jax.__version__.encode(), "install requirements.lock on every host"),
    }
    digests = [hashlib.sha256(part).digest()[:8] for part, _ in having.values()]
    rows = np.array(multihost_utils.process_allgather(np.frombuffer(b"".join(digests), np.uint32)))
    for index, (name, (_, remedy)) in enumerate(having.items()):
        columns = rows[:, 2 * index : 2 * index + 2]
        if processes := np.flatnonzero((columns != columns[0]).any(axis=1)).tolist():
            raise ValueError(f"process {processes[0]} has {name} other than process 0; {remedy}")
    if not in_bucket(workdir):
        _check_disk(Path(workdir))


def _check_disk(workdir: Path) -> None:
    """Raise ValueError if a process does not see a file that the first one makes in `workdir`."""
    number = distributed.broadcast_from_primary(int.from_bytes(os.urandom(3)))
    marker = workdir / f".seen-by-all-{number}"
    # A directory that cannot be written is reported by the plan.
    with contextlib.suppress(OSError):
        if distributed.is_primary_host():
            workdir.mkdir(parents=True, exist_ok=True)
            marker.touch()
    is_made = distributed.broadcast_from_primary(int(marker.exists()))
    appeared = np.array([not is_made or _appears(marker)], np.int32)
    everyone = np.array(multihost_utils.process_allgather(appeared)).ravel()
    with contextlib.suppress(OSError):
        if distributed.is_primary_host():
            marker.unlink()
            workdir.rmdir()  # fails unless the directory is empty
    if blind := np.flatnonzero(everyone == 0).tolist():
        raise ValueError(
            f"process {blind[0]} does not see the {workdir} of process 0; use a --workdir on a "
            "disk that all hosts see"
        )


def _appears(marker: Path) -> bool:
    end = time.monotonic() + _SECONDS_TO_APPEAR
    while time.monotonic() < end:
        # Listing asks the server, where looking for one name may be answered from memory.
        with contextlib.suppress(OSError):
            if marker.name in os.listdir(marker.parent):
                return True
        time.sleep(0.2)
    return False


def _code() -> bytes:
    """Return a digest of the source files that training may read."""
    total = hashlib.sha256()
    paths: list[Path] = list(ROOT.glob("*.py"))
    for folder in ROOT.iterdir():
        if folder.is_dir() and folder.name not in _APART and folder.name[0] != ".":
            paths += [*folder.rglob("*.py"), *folder.rglob("*.toml")]
    for path in sorted(paths):
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(path.read_bytes())
    return total.digest()
