"""Paths of files and folders: on a disk of this machine, or in a bucket (`gs://bucket/run`).

Other addresses, such as `s3://bucket/run`, raise an error: `Path` would make a folder `s3:`.
"""

import importlib
import os
import re
import shutil
from pathlib import Path

from ropewalk.utils.messages import quoted

# `Path` removes one of the two slashes. A drive (`C:/`) has a single letter.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
_LONGEST_NAME = 255  # bytes, in common file systems
_BUCKET = re.compile(r"[a-z0-9][a-z0-9_.-]{1,220}[a-z0-9]")  # as Google names them


def check_path(path: str | Path) -> None:
    """Raise ValueError for an address other than gs://, a name that no file system takes, or ~."""
    text = str(path)
    if not text:  # `Path` would be the current folder
        raise ValueError("'' is no path: write that of a file or folder, or . for this folder")
    if text.startswith("~/"):  # a shell keeps it in quotes, and after `=`
        raise ValueError(f"{quoted(text)}: ~ is not your home folder here; write $HOME{text[1:]}")
    if address := _ADDRESS.match(text):
        scheme, rest = address[1], text[address.end() :]
        if scheme != "gs":
            raise ValueError(
                f"{scheme}://{rest} cannot be read or written, as addresses of gs:// can; use one "
                "of those, a folder of this machine, or one where the bucket is mounted"
            )
        if not _BUCKET.fullmatch(rest.partition("/")[0]):
            raise ValueError(f"{quoted(text)} names no bucket: write gs://BUCKET/FOLDER")
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in Path(path).parts):
        raise ValueError(f"{quoted(text)} is no path: a name has {_LONGEST_NAME} bytes at most")


def in_bucket(path: str | Path) -> bool:
    """Return whether a path is in a bucket."""
    return bool(address := _ADDRESS.match(str(path))) and address[1] == "gs"


def as_path(path: str | Path) -> Path:
    """Return a `Path` of a disk, or a `utils.buckets.BucketPath`.

    Raises:
      ValueError: as `check_path`, or if a path in a bucket needs gcsfs, which is not installed.
    """
    check_path(path)
    if not in_bucket(path):
        return Path(path)
    try:
        importlib.import_module("gcsfs")
    except ImportError:
        raise ValueError(
            f"{_address(path)} needs gcsfs: pip install '.[gcs]' in the folder of ropewalk"
        ) from None
    from ropewalk.utils.buckets import BucketPath  # late: it imports fsspec

    return BucketPath(_address(path))  # pyright: ignore[reportReturnType]


def remove(path: Path) -> None:
    """Remove a folder; if this process is stopped here, no checkpoint is left half-removed."""
    if in_bucket(path):
        # First the file that marks a checkpoint as complete.
        for mark in path.rglob("commit_success.txt"):
            mark.unlink(missing_ok=True)
        path.rmtree(missing_ok=True)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        # A name that is no number is no checkpoint.
        aside = path.with_name(f"{path.name}.deleted")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(path.rename(aside))


def copy(source: Path, target: Path, last: str = "") -> None:
    """Copy a file or a folder between disks and buckets.

    The files of a folder are copied after those of its subfolders, by name, so that a manifest such
    as `store.json` comes last; `last` names a file that comes after all others.
    """
    if source.is_dir():
        files = [path for path in source.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda f: (f == source / last, -len(f.parts), f.name)):
            copy(path, target / path.relative_to(source))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if in_bucket(target) or in_bucket(source):
        target.write_bytes(source.read_bytes())
    else:
        part = target.with_name(f"{target.name}.part")
        shutil.copyfile(source, part)
        part.replace(target)


def copy_missing(source: Path, target: Path, *, last: str = "") -> None:
    """Copy a file or a folder that is not there; `last` is the file of a folder that comes last."""
    if not (target / last).exists():
        copy(source, target, last)


def local(path: str | Path) -> Path:
    """Return a path of a disk.

    Raises:
      ValueError: as `check_path`, or if the path is in a bucket.
    """
    check_path(path)
    if in_bucket(path):
        raise ValueError(
            f"{_address(path)} is in a bucket, and this reads and writes files of a disk only; use "
            "a folder of this machine, or one where the bucket is mounted"
        )
    return Path(path)


def _address(path: str | Path) -> str:
    """Return a bucket's path with two slashes after the scheme, and none at its end."""
    return "gs://" + _ADDRESS.sub("", str(path), count=1).rstrip("/")
