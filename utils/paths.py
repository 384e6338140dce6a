"""Paths of files and folders: on a disk of this machine, or in a bucket (`gs://bucket/run`).

`s3://bucket/run` is no folder called `s3:`. What is neither is refused, wherever a path is taken.
"""

import contextlib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from utils.errors import UnreachableError
from utils.messages import quoted

# A `Path` has one slash of the two left. A drive (`C:/`) has a single letter.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
_LONGEST_NAME = 255  # bytes, of every file system in use
_BUCKET = re.compile(r"[a-z0-9][a-z0-9_.-]{1,220}[a-z0-9]")  # as Google names them


def check_path(path: str | Path) -> None:
    """Raises ValueError if nothing here could read or write at `path`, whatever it is called.

    That is the address of a site, or of a bucket other than Google's, or a name that no file system
    takes.
    """
    text = str(path)
    if address := _ADDRESS.match(text):
        scheme, rest = address[1], text[address.end() :]
        if scheme != "gs":
            raise ValueError(
                f"{scheme}://{rest} cannot be read or written: of addresses, gs:// alone can; use "
                "that, a folder of this machine, or one where the bucket is mounted"
            )
        if not _BUCKET.fullmatch(rest.partition("/")[0]):
            raise ValueError(f"{quoted(text)} names no bucket: write gs://BUCKET/FOLDER")
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in Path(path).parts):
        raise ValueError(f"{quoted(text)} is no path: a name has {_LONGEST_NAME} bytes at most")


def in_bucket(path: str | Path) -> bool:
    """Return whether a path is that of a bucket."""
    return bool(address := _ADDRESS.match(str(path))) and address[1] == "gs"


def as_path(path: str | Path) -> Path:
    """`path` as what can be read and written: one of a disk, or a `utils.buckets.BucketPath`.

    Raises:
      ValueError: as `check_path` does, or if it is of a bucket and gcsfs is not installed.
    """
    check_path(path)
    if not in_bucket(path):
        return Path(path)
    if not _has_gcsfs():
        raise ValueError(
            f"{_address(path)} needs gcsfs: pip install '.[gcs]' in the folder of ropewalk"
        )
    from utils.buckets import BucketPath  # late: who has no bucket has no need of it

    return BucketPath(_address(path))  # pyright: ignore[reportReturnType]


def is_outage(path: Path, error: Exception) -> bool:
    """Return whether an error is of a request to a bucket, not of what lies at `path`."""
    if not in_bucket(path):
        return False
    from utils import buckets

    return buckets.is_request(error)


@contextlib.contextmanager
def raise_outages(path: Path) -> Iterator[None]:
    """Turn a failed request for `path` into an UnreachableError, whichever library made it."""
    try:
        yield
    except UnreachableError:
        raise
    except Exception as error:
        if not is_outage(path, error):
            raise
        from utils import buckets

        raise buckets.unreachable(path, error) from error


def remove(path: Path) -> None:
    """A folder with all that is in it."""
    if in_bucket(path):
        # First what says that a checkpoint is whole: who is stopped here leaves none by halves.
        for mark in path.rglob("commit_success.txt"):
            mark.unlink(missing_ok=True)
        path.rmtree(missing_ok=True)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        shutil.rmtree(path)


def move(source: Path, target: Path, last: str) -> None:
    """A folder of a disk to where there is none; its file `last` says that all of it is there."""
    if not in_bucket(target):
        source.rename(target)
        return
    for path in sorted(source.iterdir(), key=lambda path: path.name == last):
        copy(path, target / path.name)


def copy(source: Path, target: Path) -> None:
    """A file, or a folder with all that is in it, between disks and buckets.

    Of a folder the files in it come last, after those of its folders: `store.json` and the like
    say that the rest is there.
    """
    if not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        if in_bucket(target) or in_bucket(source):
            target.write_bytes(source.read_bytes())
        else:
            part = target.with_name(f"{target.name}.part")
            shutil.copyfile(source, part)
            part.replace(target)
        return
    files = [path for path in source.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (-len(path.parts), path.name)):
        copy(path, target / path.relative_to(source))


def local(path: str | Path) -> Path:
    """`path`, if it is one of a disk.

    Raises:
      ValueError: as `check_path` does, or if it is of a bucket.
    """
    check_path(path)
    if in_bucket(path):
        raise ValueError(
            f"{_address(path)} is in a bucket, and this reads and writes files of a disk only; use "
            "a folder of this machine, or one where the bucket is mounted"
        )
    return Path(path)


def _address(path: str | Path) -> str:
    """A bucket's path with both slashes, whatever became of it, and none at its end."""
    return "gs://" + _ADDRESS.sub("", str(path), count=1).rstrip("/")


def _has_gcsfs() -> bool:
    try:
        return importlib.util.find_spec("gcsfs") is not None
    except ValueError:  # of a test that hides it
        return False
