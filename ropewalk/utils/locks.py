"""Locks on files. The operating system releases a lock when its process ends, even if killed."""

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ropewalk.utils.errors import machine_error
from ropewalk.utils.messages import print_note
from ropewalk.utils.paths import in_bucket


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[IO[str] | None]:
    """Lock the file `path` for the block; yield it, or None if another process has the lock."""
    with _open(path) as file:
        try:
            _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Wait for the lock at `path`, and hold it for the block."""
    if in_bucket(path):
        with _bucket_lock(path):
            yield
        return
    with _open(path) as file:
        _flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _bucket_lock(path: Path) -> Iterator[None]:
    """Hold an object that only one process can create; delete the object of a dead process."""
    token = secrets.token_bytes(8)
    holder, since = b"", time.monotonic()
    while not path.create(token):  # pyright: ignore[reportAttributeAccessIssue]
        with contextlib.suppress(FileNotFoundError):
            if (content := path.read_bytes()) != holder:
                holder, since = content, time.monotonic()
            elif time.monotonic() - since > _STALE:
                path.unlink(missing_ok=True)
        time.sleep(0.2)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


_STALE = 60  # seconds; a holder only reads and writes one file


def _open(path: Path) -> IO[str]:
    """Open or create a file for locking; raise ValueError for no regular file."""
    # A link may lead to a file of the user, and a pipe would wait for a reader.
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if machine_error(error):  # a read-only or full disk
            raise
        raise ValueError(
            f"{path} cannot be locked ({error.strerror}); delete it, or use another directory"
        ) from None
    return os.fdopen(number, "r+")


def _flock(file: IO[str], operation: int) -> None:
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        raise
    except OSError as error:  # a mounted bucket, some network file systems
        what = f"files in {Path(file.name).parent} cannot be locked ({error.strerror})"
        print_note(None, f"{what}; another process that writes there is not noticed")
