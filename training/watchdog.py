"""Checks of a running program: its first loss, and that updates keep coming."""

import contextlib
import faulthandler
import math
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NoReturn

import jax
import numpy as np

from experiment import distributed
from experiment.run import RunDirectory
from utils.errors import HANG_STATUS
from utils.messages import duration

_TIMES = 10  # the median time of an update
_LEAST = 120.0  # seconds: requests to a bucket are repeated for half a minute
_LONGEST_SAVE = 1800.0  # seconds that the host may wait for a save
_EVERY = 1.0  # seconds between two looks
_TOLERANCE = {"float32": 1e-3, "bfloat16": 1e-2}  # relative, between two compiled programs


def check_first_loss(
    loss_M: jax.Array, sums_M2: jax.Array, runs: Sequence[RunDirectory], dtype: str
) -> None:
    """Compare the loss of the first update with that of a forward pass, another program.

    Args:
      loss_M: loss that the train step returned, nats per counted target; a scalar for one member.
      sums_M2: nats and counted targets of a forward pass with the same parameters and rows.
      runs: the members.
      dtype: `model.compute_dtype`, which decides the tolerance.

    Raises:
      ValueError: naming the first member whose losses differ.
    """
    nats_M, targets_M = np.atleast_2d(distributed.fetch(sums_M2)).T
    plain_M, step_M = nats_M / np.maximum(targets_M, 1), np.atleast_1d(distributed.fetch(loss_M))
    alike_M = np.isclose(step_M, plain_M, rtol=_TOLERANCE[dtype], atol=1e-6, equal_nan=True)
    if not alike_M.all():
        index = int(np.argmin(alike_M))
        raise ValueError(
            f"{runs[index].path}: the train step computes a loss of {step_M[index]:.6g} on its "
            f"first batch, and a forward pass {plain_M[index]:.6g}: a device or a compiled program "
            "is defective; nothing was saved. Try another machine, or delete the compiled programs"
        )


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
        self._clock = 0.0  # seconds for which this process ran while it was watched
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
        before = time.monotonic()
        while not self._ended.wait(_EVERY):
            # A longer pause between two looks is a suspension.
            self._clock += min(time.monotonic() - before, 2 * _EVERY)
            before = time.monotonic()
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
