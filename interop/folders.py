"""Folders that appear under their name only when they are complete."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from utils.paths import local


@contextlib.contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Yield `PATH.part`, for the caller to create; rename it to `path`, or delete it on an error.

    Raises:
      ValueError: if `path` exists or is in a bucket.
    """
    path = local(path)
    if path.exists():
        raise ValueError(f"{path} already exists; delete it, or choose another name")
    part = path.with_name(f"{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
        os.rename(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
