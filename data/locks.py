"""Locks on files. The system lets go of a lock when its process ends, however it ends."""

import contextlib
import fcntl
import functools
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from settings.places import in_bucket


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[IO[str] | None]:
    """The file `path`, locked by this process while it is in here; None if another one has it."""
    with path.open("a+") as file:
        try:
            _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Waits for whoever has the lock at `path`, and holds it while in here."""
    if in_bucket(path):
        with _bucket_turn(path):
            yield
        return
    with path.open("a") as file:
        _flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _bucket_turn(path: Path) -> Iterator[None]:
    """Holds an object that only one can make. What lies there for long is of a dead process."""
    mine = secrets.token_bytes(8)
    seen, since = b"", time.monotonic()
    while not path.create(mine):  # pyright: ignore[reportAttributeAccessIssue]
        with contextlib.suppress(FileNotFoundError):
            if (theirs := path.read_bytes()) != seen:
                seen, since = theirs, time.monotonic()
            elif time.monotonic() - since > _HELD:
                path.unlink(missing_ok=True)
        time.sleep(0.2)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


_HELD = 60  # seconds: who is in there reads and writes one file


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
