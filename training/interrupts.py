"""How a person, or a cluster, stops a run."""

import os
import signal

import jax
from jax.experimental import multihost_utils


class Interrupts:
    """Notes SIGINT and SIGTERM, so that the loop can save; a second SIGINT stops at once.

    Of several processes one may be told, or each at another step: JAX's preemption service, which
    has SIGTERM then, finds the step at which all of them stop.
    """

    def __enter__(self) -> "Interrupts":
        self.received = ""
        handlers = {signal.SIGINT: self._tell_all}
        if jax.process_count() == 1:
            handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self._note)
        self._previous = {number: signal.signal(number, new) for number, new in handlers.items()}
        return self

    def stops_at(self, step: int) -> bool:
        """Whether to save and stop, `step` updates being done; asked once before each update."""
        if jax.process_count() > 1 and multihost_utils.reached_preemption_sync_point(step):
            self.received = "a signal to one of the processes"
        return bool(self.received)

    def _note(self, number: int, frame) -> None:
        self.received = signal.Signals(number).name
        signal.signal(number, self._previous[signal.Signals(number)])

    def _tell_all(self, number: int, frame) -> None:
        signal.signal(number, self._previous[signal.Signals(number)])
        os.kill(os.getpid(), signal.SIGTERM)

    def __exit__(self, *exception) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
