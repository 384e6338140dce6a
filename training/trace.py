"""Profiles of chosen updates, for XProf or TensorBoard."""

from pathlib import Path
from typing import Any

import jax


class Trace:
    """Writes what devices and hosts do from update `first` to update `last`, once."""

    def __init__(self, folder: Path, steps: tuple[int, ...]):
        """`steps` is `(first, last)`, counted from 1; empty for no trace at all."""
        self._folder, self._steps, self._running = folder, steps, False

    def __enter__(self) -> "Trace":
        return self

    def before(self, step: int) -> None:
        """Begins, if update number `step` is the first to be seen."""
        if self._steps and step == self._steps[0]:
            jax.profiler.start_trace(str(self._folder))
            self._running = True

    def after(self, step: int, result: Any) -> None:
        """Ends, if update number `step` was the last one; `result` is what it gave."""
        if self._running and step == self._steps[1]:
            # It is only queued as yet: waited for, or the trace would end before it.
            jax.block_until_ready(result)
            self._stop()

    def _stop(self) -> None:
        jax.profiler.stop_trace()
        self._running = False

    def __exit__(self, *exception) -> None:
        if self._running:
            self._stop()
