"""Folders that appear under their name only when they are complete."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ropewalk.utils.files import check_writable
from ropewalk.utils.locks import try_lock
from ropewalk.utils.paths import local

_MARK = ".incomplete"  # a locked file in a folder that is being written


def check_new(path: str | Path) -> Path:
    """Return the path of a new folder.

    Raises:
      ValueError: if it exists, is in a bucket, or cannot be written.
    """
    path = local(path)
    if path.exists():
        raise ValueError(f"{path} already exists; delete it, or choose another name")
    check_writable(path.parent, "choose another folder")
    return path


def find_source(path: str | Path) -> Path:
    """Return the path of a model to import.

    Raises:
      ValueError: if it does not exist; a hub's name is answered with the download command.
    """
    path = local(path)
    if not path.exists():
        name = "/".join(path.parts[-2:])
        raise ValueError(
            f"{path} does not exist; give a folder or a GGUF file. Download a model of the hub "
            f"first: hf download {name} --local-dir {path.name} (--revision step1000 or another "
            "branch, if it has checkpoints of its training)"
        )
    return path


@contextlib.contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Yield the new folder `PATH.part`; rename it to `path`, or delete it on an error.

    A folder that a killed process left is emptied.

    Raises:
      ValueError: if `path` exists or is in a bucket, or `PATH.part` is another process's or a
        user's folder.
    """
    path = check_new(path)
    part = path.with_name(f"{path.name}.part")
    mark = part / _MARK
    if part.exists() and not mark.is_file():
        raise ValueError(f"{part} exists and is not an unfinished import or export; rename it")
    created = [parent for parent in part.parents if not parent.exists()]
    part.mkdir(parents=True, exist_ok=True)
    with try_lock(mark) as file:
        if file is None:
            raise ValueError(f"another process is writing {part}; choose another name")
        try:
            for old in part.iterdir():
                if old != mark:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            yield part
            mark.unlink()
            os.rename(part, path)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            with contextlib.suppress(OSError):
                for parent in created:
                    parent.rmdir()
            raise
