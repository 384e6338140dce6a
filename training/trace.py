"""Profiles of chosen updates, for XProf or TensorBoard."""

import contextlib
from pathlib import Path
from typing import Any

import jax


class Trace(contextlib.ExitStack):
    """Writes what devices and hosts do from update `first` to update `last`, once."""

    def __init__(self, folder: Path, steps: tuple[int, ...]):
        """`steps` is `(first, last)`, counted from 1; empty for no trace at all."""
        super().__init__()
        self._folder, self._steps = folder, steps

    def before(self, step: int) -> None:
        """Begins, if update number `step` is the first to be seen."""
        if self._steps[:1] == (step,):
            jax.profiler.start_trace(str(self._folder))
            self.callback(jax.profiler.stop_trace)

    def after(self, step: int, result: Any) -> None:
        """Ends, if update number `step` was the last one; `result` is what it gave."""
        if self._steps[1:] == (step,):
            # It is only queued as yet: waited for, or the trace would end before it.
            jax.block_until_ready(result)
            self.close()
