"""Paths of this machine, told from addresses: `s3://bucket/run` is no folder called `s3:`."""

import re
from pathlib import Path

# A `Path` has one slash of the two left. A drive (`C:/`) has a single letter.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def local(path: str | Path) -> Path:
    """`path`, if it is one.

    Raises:
      ValueError: if it is the address of a bucket or a site, which nothing here reads or writes.
    """
    if address := _ADDRESS.match(str(path)):
        rest = str(path)[address.end() :].lstrip("/")
        raise ValueError(
            f"{address[0]}/{rest} is an address, not a path: nothing is read from or written to "
            "buckets and sites; use a folder of this machine, or one where the bucket is mounted"
        )
    return Path(path)
