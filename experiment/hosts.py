"""Checks that all hosts of a run have the same code, config and JAX."""

import hashlib
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

ROOT = Path(__file__).parents[1]
_APART = {"tests", "notebooks", "runs", "build"}


def check_alike(config: object) -> None:
    """Check that hosts do not differ in code, config or JAX.

    Args:
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
