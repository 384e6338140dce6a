"""Checks, before anything is computed, of what the hosts of a run must have alike."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
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
    """Refuses a run whose hosts differ in code, config or JAX, or do not see one working directory.

    A lone process goes through unchanged.

    Args:
      workdir: as each host was given it; an address of a bucket is the same everywhere.
      config: what each host is to train, with a `repr` that says all of it.

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
    """Refuses a directory in which not all processes see a file that the first one makes."""
    number = distributed.broadcast_from_primary(int.from_bytes(os.urandom(3)))
    marker = workdir / f".seen-by-all-{number}"
    appeared = True
    with _made(marker) if distributed.is_primary_host() else contextlib.nullcontext(True) as ready:
        # Also a barrier: from here on the file is there, if it could be written at all.
        if distributed.sum_over_hosts(int(ready)) == jax.process_count():
            appeared = _appears(marker)
        everyone = np.array(
            multihost_utils.process_allgather(np.array([appeared], np.int32))
        ).ravel()
    if blind := np.flatnonzero(everyone == 0).tolist():
        raise ValueError(
            f"process {blind[0]} does not see the {workdir} of process 0; use a --workdir on a "
            "disk that all hosts see"
        )


@contextlib.contextmanager
def _made(marker: Path) -> Iterator[bool]:
    """An empty file while inside, and its folders; whether it could be made. Says nothing if not:
    what is refused for that is said where the plan is checked.
    """
    folders = [path for path in marker.parents if not path.exists()]
    try:
        with contextlib.suppress(OSError):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        yield marker.exists()
    finally:
        with contextlib.suppress(OSError):
            marker.unlink()
            for path in folders:
                path.rmdir()


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
    """A digest of the sources that training may read."""
    total = hashlib.sha256()
    paths: list[Path] = list(ROOT.glob("*.py"))
    for folder in ROOT.iterdir():
        if folder.is_dir() and folder.name not in _APART and folder.name[0] != ".":
            paths += [*folder.rglob("*.py"), *folder.rglob("*.toml")]
    for path in sorted(paths):
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(path.read_bytes())
    return total.digest()
