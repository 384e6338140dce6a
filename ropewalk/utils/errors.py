"""Errors of paths, of buckets and of the machine, and exit statuses that allow a restart."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ropewalk.utils.messages import one_line

# Another process, a device or a bucket failed, so a restart may succeed. A JobSet of xpk restarts
# on this status and on those above 127, which signals leave behind.
RESTART_STATUS = 42


class UnreachableError(OSError):
    """A bucket did not answer or refused the request, so the content of a path is unknown.

    Attributes:
      status: exit status of the command: 2 if a person must grant access, else `RESTART_STATUS`.
    """

    def __init__(self, message: str, *, refused: bool = False):
        super().__init__(message)
        self.status = 2 if refused else RESTART_STATUS


_MODULES = ("gcsfs", "aiohttp", "google", "requests", "fsspec")  # whose errors are the network's
# Words of the errors of C++ libraries. UNKNOWN stands for most error codes of Linux, such as EIO.
_WORDS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_")
_FIRST_WORDS = (*_WORDS, "UNKNOWN", "CANCELLED", "ABORTED")


def is_request(error: BaseException) -> bool:
    """Return whether a request to a bucket failed, so that the content of its path is unknown."""
    if isinstance(error, FileNotFoundError | FileExistsError):
        return False
    module = type(error).__module__.partition(".")[0]
    # TensorStore raises ValueError, array_record RuntimeError; JAX uses these words for devices.
    has_word = module not in ("jax", "jaxlib") and any(word in str(error) for word in _WORDS)
    return has_word or module in _MODULES or isinstance(error, OSError | TimeoutError)


@contextlib.contextmanager
def raise_outages(path: str | Path, *, writes: bool = False) -> Iterator[None]:
    """Turn a failed request for `path` into an UnreachableError, whichever library made it.

    With `writes`, an object or a bucket that is not found is a failed request too.
    """
    try:
        yield
    except UnreachableError:
        raise
    except Exception as error:
        texts = ("NOT_FOUND", "does not exist")
        is_gone = isinstance(error, FileNotFoundError) or any(text in str(error) for text in texts)
        is_outage = is_request(error) or (writes and is_gone)
        if not (str(path).startswith("gs:/") and is_outage):  # a `Path` has one slash
            raise
        message = one_line(str(error) or type(error).__name__, 120)
        refused = "Forbidden" in message or getattr(error, "code", None) == 401
        message = f"{path}: the request to the bucket failed ({message})"
        raise UnreachableError(message, refused=refused) from error


# A full or failing disk, permissions, too few descriptors, a closed pipe (`| head`): no defect of
# the program or of a file.
_MACHINE = {
    *(errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.EINTR, errno.ENOMEM, errno.EFBIG, errno.EBUSY),
    *(errno.ENAMETOOLONG, errno.EPIPE),
}


_ADVICE = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "; choose a path that you may use"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free space, or choose another disk"),
}


def describe(error: Exception) -> str:
    """Return the message of an error; for one of the system: path, reason, and what to do."""
    if not (isinstance(error, OSError) and error.strerror):
        return str(error)
    return f"{_with_path(error)}{_ADVICE.get(error.errno or 0, '')}"


def _with_path(error: OSError) -> str:
    path = error.filename2 or error.filename  # of two, the one that is written
    return f"{path}: {error.strerror}" if path else str(error.strerror)


def machine_error(error: BaseException | None) -> str:
    """Describe an error of the machine, or one that it caused; empty for another error."""
    for _ in range(20):  # an error may be its own cause
        if isinstance(error, MemoryError):
            return "not enough memory"
        if isinstance(error, OSError) and error.errno in _MACHINE:
            return _with_path(error)
        # Libraries in C++ raise other classes, with texts of many lines.
        for reason in map(os.strerror, _MACHINE):
            if (start := str(error).find(reason)) >= 0:
                return one_line(str(error)[max(0, start - 80) : start + len(reason) + 60], 180)
        error = error and (error.__cause__ or error.__context__)
    return ""


def is_unread(error: Exception) -> bool:
    """Return whether an error of reading is of the machine or a bucket, not of the data."""
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return False
    # Exactly RuntimeError, as for threads that cannot be started: other errors derive from it.
    return (
        isinstance(error, OSError)
        or type(error) is RuntimeError
        or str(error).startswith(_FIRST_WORDS)
        or bool(machine_error(error))
    )
