"""Profiles of chosen updates, for XProf or TensorBoard."""

import contextlib
from pathlib import Path
from typing import Any

import jax


class Trace(contextlib.ExitStack):
    """A profile of the updates from `first` to `last`, written once."""

    def __init__(self, folder: Path, steps: tuple[int, ...]):
        """Profile the updates `steps` = `(first, last)`, counted from 1; empty profiles nothing."""
        super().__init__()
        self._folder, self._steps = folder, steps

    def before(self, step: int) -> None:
        """Start the profile if update number `step` is the first one."""
        if self._steps[:1] == (step,):
            jax.profiler.start_trace(str(self._folder))
            self.callback(jax.profiler.stop_trace)

    def after(self, step: int, result: Any) -> None:
        """End the profile if update number `step` was the last one; `result` is its output."""
        if self._steps[1:] == (step,):
            # The update is only queued so far; without waiting, the profile would end before it.
            jax.block_until_ready(result)
            self.close()
