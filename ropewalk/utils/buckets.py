"""Paths in a bucket, `gs://bucket/run`, with the methods of `Path`.

`utils.paths.as_path` makes them. An object is complete or absent, so one request replaces the
temporary file and rename of a disk. There are no folders, appends or locks.

gcsfs repeats failed requests (429, 500, 502, 503, 504, a cut connection) for half a minute; then
`UnreachableError` is raised. TensorStore (arrays) and array_record (rows) repeat theirs for longer.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Self

import fsspec.config
from etils.epath import backend, gpath

from ropewalk.utils.errors import raise_outages

# A cached listing would miss objects that TensorStore and other processes write.
fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
# gcsfs logs the traceback of an error and raises it: one message is enough.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


class BucketPath(gpath.PosixGPath):
    """A path in a bucket; its methods raise UnreachableError if a request fails finally."""

    @property
    def _backend(self) -> Any:
        # Not TensorFlow's backend, which etils prefers if installed: its errors differ.
        return _Backend()

    def resolve(self, strict: bool = False) -> Self:
        """Return the path: a bucket has no links and no current directory."""
        return self

    def is_dir(self) -> bool:
        """Return whether objects lie below the path."""
        # gcsfs's `isdir` returns False after a failed request.
        try:
            return self._backend.info(str(self))["type"] == "directory"
        except FileNotFoundError:
            return False

    def mkdir(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a bucket has no folders."""

    def stat(self) -> Any:
        """Return an `os.stat_result` with the size and the time of modification."""
        info = self._backend.info(str(self))
        when = getattr(info.get("mtime"), "timestamp", lambda: 0)()
        times = {f"st_{name}time_ns": int(when * 1e9) for name in "amc"}
        return os.stat_result((0, 0, 0, 0, 0, 0, info.get("size") or 0, when, when, when), times)

    def rglob(self, pattern: str) -> Iterator["BucketPath"]:
        """Yield the files below whose names match."""
        paths = (self._new(f"gs://{name}") for name in self._backend.find(str(self)))
        return (path for path in paths if path.match(pattern))

    def read_bytes(self) -> bytes:
        """Read the object by one request."""
        return self._backend.cat_file(str(self))

    def read_text(self, encoding: str | None = None) -> str:
        """Read the object as text."""
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, data: bytes) -> int:
        """Replace the object by one request: readers see the old or the new content."""
        with raise_outages(str(self), writes=True):  # there may be no such bucket
            self._backend.pipe_file(str(self), data)
        return len(data)

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None) -> int:
        """Replace the object by a text."""
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def create(self, data: bytes) -> bool:
        """Create the object unless it exists; return whether this process created it."""
        try:
            self._backend.pipe_file(str(self), data, mode="create")
            return True
        except FileExistsError:
            # Perhaps this process created it: gcsfs repeats a request whose connection was cut.
            with contextlib.suppress(FileNotFoundError):
                return self.read_bytes() == data
            return False


class _Backend:
    """Functions of fsspec and of etils' backend; failed requests raise UnreachableError."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        etils_function = getattr(backend.fsspec_backend, name, None)

        def call(path: str, *args: Any, **kwargs: Any) -> Any:
            function = etils_function or getattr(backend.fsspec_backend.fs(path), name)
            with raise_outages(path):
                return function(path, *args, **kwargs)

        return call
