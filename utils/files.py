"""Atomic writes and JSON files with a digest."""

import hashlib
import json
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from utils.messages import one_line
from utils.paths import in_bucket


class DamagedError(ValueError):
    """A file of prepared data is damaged.

    Attributes:
      what: the file and its damage; the message of the exception adds what to do.
    """

    def __init__(self, what: str):
        super().__init__(f"{what}; `python -m data.prepare --verify` says what to delete")
        self.what = what


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
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or one_line(str(error.__cause__ or error), 100)
        raise ValueError(f"{folder} cannot be written to ({reason}); {otherwise}") from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file at once, so that a crash leaves the old or the new content."""
    content = content.encode() if isinstance(content, str) else content
    if in_bucket(path):
        path.write_bytes(content)
        return
    # A random name: the jobs of an array start one sweep in the same second.
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_checksummed(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON object together with its sha256, which `read_checksummed` checks."""
    write_atomically(path, json.dumps({**record, "sha256": digest(record)}, indent=1))


def read_checksummed(path: Path) -> dict[str, Any]:
    """Return a JSON object of `write_checksummed`, without its sha256.

    Raises:
      FileNotFoundError: if there is no file.
      DamagedError: if it is not a JSON object, or its sha256 differs.
    """
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DamagedError(f"{path}: damaged: it is not JSON") from None
    if not isinstance(record, dict):
        raise DamagedError(f"{path}: damaged: it is not a JSON object")
    if record.pop("sha256", None) != digest(record):
        raise DamagedError(f"{path}: damaged: its sha256 is not that of its content")
    return record


def digest(record: dict[str, Any]) -> str:
    """Return the sha256 of a JSON object, in hex."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
