"""Manifests: JSON files that state the size and sha256 of files in their folder, and of themselves.

A manifest is written last, so it also says that its folder is complete.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ropewalk.utils.errors import raise_outages
from ropewalk.utils.files import write_atomically
from ropewalk.utils.limits import check_file, read_json
from ropewalk.utils.threads import map_ahead, num_cpus

_CHUNK = 1 << 20  # bytes read at a time


class DamagedError(ValueError):
    """A file of prepared data is damaged.

    Attributes:
      what: the file and its damage; the message of the exception adds what to do.
    """

    def __init__(self, what: str):
        super().__init__(f"{what}; `ropewalk prepare --verify` says what to delete")
        self.what = what


def digest(record: Any) -> str:
    """Return the sha256 of a JSON value, in hex."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def seal(record: dict[str, Any], key: str = "sha256") -> dict[str, Any]:
    """Return a JSON object with its own digest under `key`."""
    return {**record, key: digest(record)}


def unseal(record: dict[str, Any], key: str = "sha256") -> bool:
    """Remove the digest of `seal` from a JSON object; return whether it was correct."""
    return record.pop(key, None) == digest(record)


def file_entries(folder: Path, paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return size (bytes) and sha256 of files, by their paths relative to `folder`."""
    return {
        path.relative_to(folder).as_posix(): dict(bytes=path.stat().st_size, sha256=hash_file(path))
        for path in paths
    }


def write_manifest(path: Path, record: dict[str, Any], files: dict[str, dict[str, Any]]) -> None:
    """Write a JSON object with `files` (from `file_entries`) and its own sha256."""
    write_atomically(path, json.dumps(seal({**record, "files": files}), indent=1))


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the record of `write_manifest`, without its own sha256.

    Raises:
      FileNotFoundError: if there is no file.
      DamagedError: if it is not a JSON object, or its sha256 differs.
    """
    try:
        record = read_json(path)
        if unseal(record):
            return record
    except (AttributeError, TypeError, ValueError):
        raise DamagedError(f"{path}: damaged: it is not a JSON object") from None
    raise DamagedError(f"{path}: damaged: its sha256 is not that of its content")


def find_damages(path: Path, on_bytes: Callable[[int], None] = lambda count: None) -> Iterator[str]:
    """Yield one sentence per damaged file of a manifest, or about the manifest itself.

    Args:
      path: path of the manifest.
      on_bytes: called with numbers of bytes read, by several threads.
    """
    try:
        files = read_manifest(path).get("files", {})
        if not isinstance(files, dict) or not all(map(_is_entry, files.items())):
            raise DamagedError(
                f"{path}: damaged: its `files` are not files of its folder with bytes and sha256"
            )
    except DamagedError as error:
        yield error.what
        return
    check = functools.partial(_find_damage, path.parent, on_bytes)
    threads = num_cpus()
    yield from filter(None, map_ahead(check, files.items(), num_threads=threads, ahead=2 * threads))


def _is_entry(item: tuple[str, Any]) -> bool:
    """Return whether an entry of `files` is whole: a file that came with it names no others."""
    name, entry = item
    has_values = isinstance(entry, dict) and {"bytes", "sha256"} <= entry.keys()
    parts = Path(name).parts
    is_below = bool(parts) and ".." not in parts and not Path(name).is_absolute()
    return has_values and is_below


def _find_damage(
    folder: Path, on_bytes: Callable[[int], None], item: tuple[str, dict[str, Any]]
) -> str:
    name, entry = item
    path = folder / name
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"{path}: {size} bytes where {entry['bytes']} were written"
        is_intact = hash_file(path, on_bytes) == entry["sha256"]
    except FileNotFoundError:
        return f"{path}: missing"
    return "" if is_intact else f"{path}: damaged: not the content that was written"


def hash_file(path: Path, on_bytes: Callable[[int], None] = lambda count: None) -> str:
    """Return the sha256 of a regular file, in hex; `on_bytes` gets numbers of bytes read."""
    check_file(path)
    sha256 = hashlib.sha256()
    with raise_outages(path), path.open("rb") as file:
        while data := file.read(_CHUNK):
            sha256.update(data)
            on_bytes(len(data))
    return sha256.hexdigest()
