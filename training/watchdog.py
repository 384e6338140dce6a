"""Checks of a running program: its first loss, and that updates keep coming."""

import contextlib
import faulthandler
import math
import os
import statistics
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import NoReturn

import jax

from utils.errors import HANG_STATUS
from utils.messages import duration

_TIMES = 10  # the median time of an update
_LEAST = 120.0  # seconds: requests to a bucket are repeated for half a minute
_LONGEST_SAVE = 1800.0  # seconds that the host may wait for a save
_EVERY = 1.0  # seconds between two looks


class Watchdog:
    """End the process if no update ends for ten times as long as usual, or a save hangs.

    A device, a collective or a disk that hangs raises no error, and a job would wait until its time
    limit. The process prints the stacks of all threads and exits with `HANG_STATUS`; the run
    resumes from its last checkpoint. Compilation and validation are not timed, and neither is the
    time in which the process is suspended (Ctrl-Z, `scontrol suspend`).
    """

    def __init__(self):
        """Watch nothing yet; `start` begins."""
        self._queued: deque[jax.Array] = deque()
        self._times: deque[float] = deque(maxlen=20)  # seconds per update
        self._event, self._last, self._limit = "update", 0.0, math.inf
        self._clock = 0.0  # seconds watched: a suspended process makes no looks
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._ended.set()
        self._thread.join()

    def start(self) -> None:
        """Start timing, after the first update, which includes compilation."""
        self._queued.clear()
        self._last, self._limit = self._clock, None

    def add(self, scalar: jax.Array) -> None:
        """Add an update that was queued, by one of its results."""
        self._queued.append(scalar)

    @contextlib.contextmanager
    def pause(self, *, saves: bool = False) -> Iterator[None]:
        """Do not time updates in the block; if it `saves`, time it as the wait for a save."""
        before = self._event, self._limit
        self._event, self._last = "save" if saves else "update", self._clock
        self._limit = _LONGEST_SAVE if saves else math.inf
        try:
            yield
        finally:
            self._last = self._clock
            self._event, self._limit = before

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY):
            self._clock += _EVERY
            ended = 0
            while self._queued and self._queued[0].is_ready():  # pyright: ignore
                self._queued.popleft()
                ended += 1
            now = self._clock
            if ended:
                self._times.append((now - self._last) / ended)
                self._last = now
            limit = self._limit
            if limit is None:
                limit = max(_LEAST, _TIMES * statistics.median(self._times or [math.inf]))
            if now - self._last > limit:
                _end_process(self._event, now - self._last)


def _end_process(event: str, silence: float) -> NoReturn:
    faulthandler.dump_traceback(all_threads=True)
    print(
        f"no {event} ended for {duration(silence)}: the stacks of all threads are above. This "
        "process ends; the same command resumes from the last checkpoint",
        file=sys.stderr,
        flush=True,
    )
    os._exit(HANG_STATUS)
