"""Errors that several folders raise, and exit statuses of commands that may be started again."""

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
