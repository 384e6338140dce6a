"""Errors that several folders raise, and exit statuses of commands that may be started again."""

import errno
import os

from utils.messages import one_line

# Another process, a device or a bucket failed, so a restart may succeed. A JobSet of xpk restarts
# on this status and on those above 127, which signals leave behind.
RESTART_STATUS = 42
# No update ended for ten times as long as usual (`training.watchdog`).
HANG_STATUS = 43


class UnreachableError(OSError):
    """A bucket did not answer or refused the request, so the content of a path is unknown.

    Attributes:
      status: exit status of the command: 2 if a person must grant access, else `RESTART_STATUS`.
    """

    def __init__(self, message: str, *, refused: bool = False):
        super().__init__(message)
        self.status = 2 if refused else RESTART_STATUS


# A full or failing disk, permissions, too few descriptors: no defect of the program or of a file.
_MACHINE = {
    *(errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.EINTR, errno.ENOMEM, errno.EFBIG, errno.EBUSY),
}


_ADVICE = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "; choose a path that you may use"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free space, or choose another disk"),
}


def describe(error: Exception) -> str:
    """Return the message of an error; for one of the system: path, reason, and what to do."""
    if not (isinstance(error, OSError) and error.filename and error.strerror):
        return str(error)
    return f"{error.filename}: {error.strerror}{_ADVICE.get(error.errno or 0, '')}"


def machine_error(error: BaseException | None) -> str:
    """Describe an error of the machine, or one that it caused; empty for another error."""
    for _ in range(20):  # an error may be its own cause
        if isinstance(error, MemoryError):
            return "not enough memory"
        if isinstance(error, OSError) and error.errno in _MACHINE:
            return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        # Libraries in C++ raise other classes, with texts of many lines.
        for reason in map(os.strerror, _MACHINE):
            if (start := str(error).find(reason)) >= 0:
                return one_line(str(error)[max(0, start - 80) : start + len(reason) + 60], 180)
        error = error and (error.__cause__ or error.__context__)
    return ""
