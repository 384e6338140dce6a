"""A check that updates of a running program keep coming."""

import contextlib
import faulthandler
import math
import os
import sys
import threading
from collections.abc import Iterator

from ropewalk.utils.errors import HANG_STATUS
from ropewalk.utils.messages import duration

_TIMES = 5  # the longest time between two updates so far
_LEAST = 120.0  # seconds: requests to a bucket are repeated for half a minute
_LONGEST_SAVE = 1800.0  # seconds that the host may wait for a save
_EVERY = 1.0  # seconds between two looks


class Watchdog:
    """End the process if no update comes for five times as long as ever before, or a save hangs.

    A device, a collective or a disk that hangs raises no error, and a job would wait until its time
    limit. The process prints the stacks of all threads and exits with `HANG_STATUS`; the run
    resumes from its last checkpoint. Compilation and validation are not timed, and neither is the
    time in which the process is suspended (Ctrl-Z, `scontrol suspend`).

    The host runs ahead of the devices, but it waits for them whenever it fetches scalars to log.
    """

    def __init__(self):
        """Watch nothing until the first `beat`."""
        self._silence, self._longest = 0.0, 0.0  # seconds watched: none while suspended
        self._event, self._limit = "update", math.inf
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._ended.set()
        self._thread.join()

    def beat(self) -> None:
        """Tell that the host has gone on to the next update; first after compilation."""
        if self._limit < math.inf:
            self._longest = max(self._longest, self._silence)
        self._silence, self._limit = 0.0, max(_LEAST, _TIMES * self._longest)

    @contextlib.contextmanager
    def pause(self, *, saves: bool = False) -> Iterator[None]:
        """Do not time updates in the block; if it `saves`, time it as the wait for a save."""
        before = self._event, self._limit
        self._silence, self._limit = 0.0, _LONGEST_SAVE if saves else math.inf
        self._event = "save" if saves else "update"
        try:
            yield
        finally:
            self._silence = 0.0
            self._event, self._limit = before

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY):
            self._silence += _EVERY
            if self._silence > self._limit:
                faulthandler.dump_traceback(all_threads=True)
                print(
                    f"no {self._event} ended for {duration(self._silence)}: the stacks of all "
                    "threads are above. This process ends; the same command resumes from the last "
                    "checkpoint",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(HANG_STATUS)
