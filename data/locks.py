"""Locks on files. The system lets go of a lock when its process ends, however it ends."""

import contextlib
import fcntl
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[IO[str] | None]:
    """The file `path`, locked by this process while it is in here; None if another one has it."""
    with path.open("a+") as file:
        try:
            _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Waits for whoever has the lock at `path`, and holds it while in here."""
    with path.open("a") as file:
        _flock(file, fcntl.LOCK_EX)
        yield


def _flock(file: IO[str], operation: int) -> None:
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        raise
    except OSError as error:  # a mounted bucket, some network file systems
        _warn(str(Path(file.name).parent), str(error.strerror))


@functools.cache
def _warn(folder: str, reason: str) -> None:
    print(
        f"warning: {folder} lies where files cannot be locked ({reason}); nothing here would "
        "notice another process that writes there too",
        file=sys.stderr,
    )
