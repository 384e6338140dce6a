"""Signals from a user, a terminal that closes, or a cluster, which stop a run."""

import os
import signal

import jax
from jax.experimental import multihost_utils


class Interrupts:
    """Record SIGINT, SIGTERM and SIGHUP, so that the loop can save; a second one stops at once.

    With several processes, the signal may reach only one of them, or each at another step. JAX's
    preemption service, which handles SIGTERM then, determines a common step at which all stop.
    """

    def __enter__(self) -> "Interrupts":
        self.received = ""
        self._terminals = [number for number in (1, 2) if os.isatty(number)]
        numbers = [signal.SIGINT, signal.SIGHUP]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # started by nohup
            numbers.remove(signal.SIGHUP)
        handlers = dict.fromkeys(numbers, self._tell_all)
        if jax.process_count() == 1:
            handlers = dict.fromkeys([*numbers, signal.SIGTERM], self._record)
        self._previous = {number: signal.signal(number, new) for number, new in handlers.items()}
        return self

    def stops_at(self, step: int) -> bool:
        """Return whether to save and stop after `step` updates; called once before each update."""
        if jax.process_count() > 1 and multihost_utils.reached_preemption_sync_point(step):
            self.received = "a signal to one of the processes"
        return bool(self.received)

    def _record(self, number: int, frame) -> None:
        self.received = signal.Signals(number).name
        self._restore(number)

    def _tell_all(self, number: int, frame) -> None:
        self._restore(number)
        os.kill(os.getpid(), signal.SIGTERM)

    def _restore(self, number: int) -> None:
        signal.signal(number, self._previous[signal.Signals(number)])
        if number == signal.SIGHUP:  # to print into a closed terminal is an error
            for terminal in self._terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)

    def __exit__(self, *exception) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
