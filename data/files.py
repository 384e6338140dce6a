"""Files that are whole or not there, or known to be damaged."""

import hashlib
import json
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from settings.messages import one_line
from settings.places import in_bucket


class DamagedError(ValueError):
    """A file of prepared data is not as it was written.

    Attributes:
      what: names the file and says what is wrong with it; the message says how to go on, too.
    """

    def __init__(self, what: str):
        super().__init__(f"{what}; `python -m data.prepare --verify` says what to delete")
        self.what = what


def check_writable(folder: Path, otherwise: str) -> None:
    """Raises ValueError if no file can be made in a folder, which need not exist yet.

    Args:
      folder: where something is to be written, after work that would be lost.
      otherwise: what to do then.
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
    """The whole file or nothing, even if the machine stops in between."""
    content = content.encode() if isinstance(content, str) else content
    if in_bucket(path):
        path.write_bytes(content)
        return
    # Each writer its own: the jobs of an array begin one sweep in the same second.
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
    """Writes a JSON object with the sha256 of the rest of it, by which `read_checksummed` knows it."""
    write_atomically(path, json.dumps({**record, "sha256": _digest(record)}, indent=1))


def read_checksummed(path: Path) -> dict[str, Any]:
    """What `write_checksummed` wrote; of an object made before there were digests, what it says.

    Raises:
      FileNotFoundError: if there is none.
      DamagedError: if it is no JSON object, or not the one that was written.
    """
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DamagedError(f"{path}: damaged: it is not JSON") from None
    if not isinstance(record, dict):
        raise DamagedError(f"{path}: damaged: it is not a JSON object")
    if record.pop("sha256", None) not in (None, _digest(record)):
        raise DamagedError(f"{path}: damaged: its sha256 is not that of what it says")
    return record


def is_checksummed(path: Path) -> bool:
    """Whether a file that `read_checksummed` reads has a digest."""
    return "sha256" in json.loads(path.read_bytes())


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
