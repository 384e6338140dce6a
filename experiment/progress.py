"""What a person sees of a training run, and how they stop it."""

import os
import signal
import time

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class TrainProgress:
    """A live line on a terminal; a plain line now and then elsewhere."""

    def __init__(
        self, console: Console, label: str, *, start_step: int, end_step: int, tokens_per_step: int
    ):
        self._console, self._label = console, label
        self._start_step, self._end_step = start_step, end_step
        self._tokens_per_step = tokens_per_step
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(
            self._label, total=end_step, completed=start_step, values="compiling"
        )
        self._next_line = start_step

    def __enter__(self) -> "TrainProgress":
        self._start = self._time = time.perf_counter()
        self._logged_step = self._start_step
        if not self._console.is_terminal:
            self._console.print(f"{self._label}: compiling the train step")
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def announce(self, line: str) -> None:
        """Says something that stays above the live line."""
        self._console.print(line, highlight=False)

    def restart_clock(self, step: int) -> None:
        """Leaves compilation out of the rates: `step` is the first one done."""
        self._time, self._logged_step = time.perf_counter(), step

    def advance(self, step: int) -> None:
        """`step` updates are done or under way."""
        self._bar.update(self._task, completed=step)

    def seconds_per_step(self, step: int) -> float:
        """Between the last call and this one."""
        now, before = time.perf_counter(), self._time
        steps = max(1, step - self._logged_step)
        self._time, self._logged_step = now, step
        return (now - before) / steps

    def elapsed(self) -> float:
        """Seconds since the loop began."""
        return time.perf_counter() - self._start

    def log(
        self, step: int, loss_M: np.ndarray, tokens_per_second: float, num_skipped: int
    ) -> None:
        """Shows the newest losses; `loss_M` has one entry a member, `num_skipped` of them refused
        an update that was not finite."""
        low, high = np.min(loss_M), np.max(loss_M)
        loss = f"{low:.3f}" if len(loss_M) == 1 else f"{low:.3f}..{high:.3f}"
        values = f"loss {loss}  {tokens_per_second:,.0f} tok/s"
        if num_skipped:
            values += f"  {num_skipped} not finite: update skipped"
        self._bar.update(self._task, values=values)
        if not self._console.is_terminal and step >= self._next_line:
            # About twenty lines a run, however long it is.
            self._next_line = step + self._end_step / 20
            left = (self._end_step - step) * self._tokens_per_step / tokens_per_second
            self._console.print(
                f"{self._label}: step {step}/{self._end_step}  {values}  {left / 60:.1f} min left",
                highlight=False,
            )


class Interrupts:
    """Notes SIGINT and SIGTERM, so that the loop can save; a second SIGINT stops at once.

    Of several processes one may be told, or each at another step: JAX's preemption service, which
    has SIGTERM then, finds the step at which all of them stop.
    """

    def __enter__(self) -> "Interrupts":
        self.received = ""
        alone = jax.process_count() == 1
        handlers = {signal.SIGINT: self._note if alone else self._tell_all}
        if alone:
            handlers[signal.SIGTERM] = self._note
        self._previous = {
            number: signal.signal(number, handler) for number, handler in handlers.items()
        }
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
