"""Atomic writes."""

import os
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ropewalk.utils.messages import one_line
from ropewalk.utils.paths import in_bucket


def check_writable(folder: Path, otherwise: str) -> None:
    """Raise ValueError if no file can be written in a folder, which need not exist yet.

    Args:
      folder: folder that a later step writes into.
      otherwise: advice at the end of the message.
    """
    try:
        if in_bucket(folder):
            probe = folder / f".writable-{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)
            return
        parents = (folder, *folder.absolute().parents)
        existing = next(path for path in parents if os.path.lexists(path))
        if not existing.exists():
            target = os.path.realpath(existing)
            raise ValueError(
                f"{existing} is a link to {target}, which does not exist; mount or make it, or "
                f"{otherwise}"
            )
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or one_line(str(error.__cause__ or error), 100)
        raise ValueError(f"{folder} cannot be written to ({reason}); {otherwise}") from None


def check_links(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError for a link among `names` in a folder: nothing is written through one.

    Whoever made the folder may have put it there, and what it leads to is a folder of the user.
    """
    for path in () if in_bucket(folder) else map(folder.joinpath, names):
        if path.is_symlink():
            raise ValueError(
                f"{path} links to {os.path.realpath(path)}, and nothing is written through a link; "
                f"put the folder itself there, or move {folder} to the other disk"
            )


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file at once, so that a crash leaves the old or the new content.

    A link is replaced, not followed.

    Raises:
      ValueError: if `path` is a folder, pipe or device.
    """
    content = content.encode() if isinstance(content, str) else content
    if in_bucket(path):
        path.write_bytes(content)
        return
    if path.exists() and not (path.is_file() or path.is_symlink()):
        raise ValueError(f"{path} is not a regular file; choose another path")
    # A random name: the jobs of an array start one sweep in the same second.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(content)
        sync(part)
        os.replace(part, path)
    except OSError as error:
        error.filename = str(path)  # a full disk is an error without a path
        raise
    finally:
        part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Write a file to the disk, so that a loss of power after a rename does not empty it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
