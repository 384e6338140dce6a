"""Paths of a bucket, `gs://bucket/run`: what a `Path` of a disk can do, and how a bucket does it.

Nothing but `utils.paths.as_path` makes them; whoever has one uses it as any `Path`. Objects are
whole or not there, so one request stands where a disk needs a file beside and a rename. There are
no folders to make, nothing is appended to and nothing is locked.

Requests that fail (429, 500, 502, 503, 504, a cut connection) are made again, for half a minute,
by gcsfs; what fails after that is an `UnreachableError`. Arrays go through TensorStore and rows
through array_record, which do so by themselves, for longer.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Self

import fsspec.config
from etils.epath import backend, gpath

from utils.errors import UnreachableError
from utils.messages import one_line

# A listing that is kept knows nothing of what TensorStore and other processes write.
fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
# What it gives up on it writes with its traceback, and raises: that is said once.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)

_MODULES = ("gcsfs", "aiohttp", "google", "requests", "fsspec")  # whose errors are the network's
_WORDS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_")


def is_request(error: BaseException) -> bool:
    """Return whether an error is that of a request, and says nothing about what was asked for."""
    if isinstance(error, FileNotFoundError | FileExistsError):
        return False
    told_by = type(error).__module__.partition(".")[0]
    # TensorStore's are ValueErrors, array_record's RuntimeErrors; JAX's words are of devices.
    has_word = told_by not in ("jax", "jaxlib") and any(word in str(error) for word in _WORDS)
    return has_word or told_by in _MODULES or isinstance(error, OSError | TimeoutError)


def unreachable(path: object, error: BaseException) -> UnreachableError:
    """Make the exception to raise from the error of a request."""
    message = one_line(str(error) or type(error).__name__, 120)
    refused = "Forbidden" in message or getattr(error, "code", None) == 401
    return UnreachableError(f"{path}: the bucket did not do it ({message})", refused=refused)


class BucketPath(gpath.PosixGPath):
    """A name in a bucket. Raises UnreachableError where a request fails for good."""

    @property
    def _backend(self) -> Any:
        # Not TensorFlow's, wherever that is installed: it has other errors.
        return _Backend()

    @property
    def _files(self) -> Any:
        return backend.fsspec_backend.fs(self)

    def resolve(self, strict: bool = False) -> Self:
        """Itself: there are no links."""
        return self

    def absolute(self) -> Self:
        """Itself: there is no current directory."""
        return self

    def is_dir(self) -> bool:
        """Return whether something lies below it."""
        # Not by gcsfs's `isdir`, to which a request that failed is a no.
        try:
            return self._backend.info(str(self))["type"] == "directory"
        except FileNotFoundError:
            return False

    def mkdir(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: a name needs no folder."""

    def stat(self) -> Any:
        """An `os.stat_result` of which size and time of modification are known."""
        info = self._backend.info(str(self))
        when = getattr(info.get("mtime"), "timestamp", lambda: 0)()
        return os.stat_result((0, 0, 0, 0, 0, 0, info.get("size") or 0, when, when, when))

    def rglob(self, pattern: str) -> Iterator["BucketPath"]:
        """Files below, whose names fit."""
        paths = (self._new(f"gs://{name}") for name in self._backend.find(str(self)))
        return (path for path in paths if path.match(pattern))

    def read_bytes(self) -> bytes:
        """All of it, by one request."""
        return self._backend.cat_file(str(self))

    def read_text(self, encoding: str | None = None) -> str:
        """All of it."""
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, data: bytes) -> int:
        """By one request; who reads sees what was there before, or all of this."""
        self._backend.pipe_file(str(self), data)
        return len(data)

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None) -> int:
        """Write a text as `write_bytes` does."""
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def create(self, data: bytes) -> bool:
        """Writes it if nothing is there; whether it did."""
        try:
            self._backend.pipe_file(str(self), data, mode="create")
            return True
        except FileExistsError:
            # Perhaps by this process: a request that was cut is made again.
            with contextlib.suppress(FileNotFoundError):
                return self.read_bytes() == data
            return False


class _Backend:
    """fsspec's functions, and etils' of the same file system, with one kind of error."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        of_etils = getattr(backend.fsspec_backend, name, None)

        def call(path: str, *args: Any, **kwargs: Any) -> Any:
            function = of_etils or getattr(backend.fsspec_backend.fs(path), name)
            try:
                return function(path, *args, **kwargs)
            except Exception as error:
                if not is_request(error):
                    raise
                raise unreachable(path, error) from error

        return call
