"""Paths of this machine, told from addresses: `s3://bucket/run` is no folder called `s3:`."""

import os
import re
from pathlib import Path

from settings.messages import quoted

# A `Path` has one slash of the two left. A drive (`C:/`) has a single letter.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_LONGEST_NAME = 255  # bytes, of every file system in use


def local(path: str | Path) -> Path:
    """`path`, if it is one.

    Raises:
      ValueError: if it is the address of a bucket or a site, which nothing here reads or writes,
        or has a name that no file system takes.
    """
    if address := _ADDRESS.match(str(path)):
        rest = str(path)[address.end() :].lstrip("/")
        raise ValueError(
            f"{address[0]}/{rest} is an address, not a path: nothing is read from or written to "
            "buckets and sites; use a folder of this machine, or one where the bucket is mounted"
        )
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in Path(path).parts):
        raise ValueError(
            f"{quoted(str(path))} is no path: a name has {_LONGEST_NAME} bytes at most"
        )
    return Path(path)
