"""Logging during training: rows of metrics.jsonl, trackers, the terminal, divergence, profiles."""

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ropewalk.experiment import distributed
from ropewalk.experiment.checkpoint import last_good
from ropewalk.experiment.cost import flops_per_token, peak_flops
from ropewalk.experiment.metrics import MetricsLog
from ropewalk.experiment.stages import Stage
from ropewalk.training.plan import Plan
from ropewalk.utils.messages import duration


def make_console() -> Console:
    """Return where progress is printed: standard error of the primary host."""
    quiet = not distributed.is_primary_host()
    return Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)


class DivergedError(ValueError):
    """All members diverged; the message names the step and the last good checkpoint."""


class Divergence:
    """The members of a run whose loss or gradient is no longer finite.

    On the devices, the state is frozen after `train.max_skipped` skipped updates in a row
    (`training.step`). The host detects this when it fetches the scalars for logging.
    """

    def __init__(self, plan: Plan, console: Console):
        """Count members as diverged after `max_skipped` skipped updates, or a skipped last one."""
        self._runs, self._console, self.num_members = plan.runs, console, len(plan.runs)
        self._max_skipped, self._num_steps = plan.config.train.max_skipped, plan.num_steps
        self._since: dict[int, int] = {}  # first update skipped, by a member's index

    def update(self, step: int, skipped_M: np.ndarray) -> None:
        """Record the updates that each member has skipped in a row at `step`; print what is new."""
        for index, count in enumerate(skipped_M.tolist()):
            over = count >= self._max_skipped or (count and step == self._num_steps)
            if over and index not in self._since:
                self._since[index] = step - count + 1
                if self.num_members > 1:
                    line = f"{self._describe(index)} (frozen; the other members continue)"
                    self._console.print(line)

    @property
    def everywhere(self) -> bool:
        """True if all members have diverged."""
        return len(self._since) == self.num_members

    def __str__(self):
        """Return the summary at the end of training; empty if no member diverged."""
        if self.num_members == 1 or not self._since:
            return "".join(map(self._describe, self._since))
        since = (f"{self._runs[index].name} at step {step}" for index, step in self._since.items())
        return f"{len(self._since)} of {self.num_members} members diverged: {', '.join(since)}"

    def _describe(self, index: int) -> str:
        run, step = self._runs[index], self._since[index]
        good = last_good(run.steps(), step)
        advice = "no checkpoint is older; start again in another --workdir"
        if good is not None:
            advice = f"its last good checkpoint is step {good}: start_from={run.path}@{good}"
        return (
            f"{run.path} diverged at step {step}: loss or gradient is not finite from there on "
            f"and every update is skipped; {advice}, with a lower train.learning_rate"
        )


def _range(values_M: np.ndarray) -> str:
    """Return the range over members as text."""
    low, high = values_M.min(), values_M.max()
    return f"{low:.3f}" if len(values_M) == 1 else f"{low:.3f}..{high:.3f}"


class StageLog:
    """The log of one stage: rows of every member, and a progress bar or occasional lines.

    Scalars are fetched late. `put` stores the scalars of a step that is still running, and `flush`,
    one step later, waits for them and writes the row while the devices run the next step.
    Fetching them at once would leave the devices idle after every logged step. Rates count from the
    end of one logged step to the end of the next; a thread waits for each, because the host may be
    ahead of the devices, or late.
    """

    def __init__(
        self,
        console: Console,
        label: str,
        stages: Sequence[Stage],
        logs: Sequence[MetricsLog],
        divergence: Divergence,
        later_tokens: int = 0,
    ):
        """Write rows to `logs`, one per member; empty on all but the primary host.

        `stages` has the stage of each member; `later_tokens` is the number of tokens that the job
        trains on after it.
        """
        self._later_tokens = later_tokens
        self._divergence = divergence
        self._console, self._label, self._logs = console, label, logs
        self._stage = stage = stages[0]
        self._tokens_per_step = stage.tokens_per_step
        self._flops_per_token = sum(flops_per_token(stage.config) for stage in stages)
        self._peak = peak_flops()
        self._waiter = ThreadPoolExecutor(1)
        self._pending: tuple[int, dict[str, jax.Array], Future[float]] | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(label, total=stage.end, values="compiling")
        self._next_line, self._val_loss, self.summary = 0.0, "", ""
        self._notebook_line: Any = None

    def __enter__(self) -> "StageLog":
        self._start = time.perf_counter()
        if not self._console.is_terminal:
            self._print_progress(f"{self._label}: compiling the train step")
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._waiter.shutdown(wait=False)
        self._bar.stop()

    def start_clock(self, step: int) -> None:
        """Start measuring rates at `step`, the first update after compilation."""
        self._time, self._logged_step = time.perf_counter(), step
        self._clock = self._time, step

    def advance(self, step: int) -> None:
        """Show that `step` updates are done or queued."""
        self._bar.update(self._task, completed=step)

    def put(self, step: int, scalars: dict[str, jax.Array]) -> None:
        """Store the scalars of update number `step`, each one number or one per member."""
        self._pending = step, scalars, self._waiter.submit(_finish_time, scalars["loss"])

    def add(self, scalars: dict[str, jax.Array]) -> None:
        """Add scalars to those that are stored."""
        assert self._pending is not None
        self._pending[1].update(scalars)

    def flush(self) -> None:
        """Write the stored scalars, if there are any."""
        if self._pending is None:
            return
        (step, scalars, finish_time), self._pending = self._pending, None
        values_M = {name: np.atleast_1d(np.asarray(x)) for name, x in scalars.items()}
        now, steps = finish_time.result(), max(1, step - self._logged_step)
        # The first update's own time is not known: its rate includes the compilation.
        since = self._time if step > self._clock[1] else self._start
        tokens_per_second = steps * self._tokens_per_step / (now - since)
        self._time, self._logged_step = now, step
        flops_per_second = tokens_per_second * self._flops_per_token
        rates = {
            "seconds": round(now - self._start, 3),
            "tokens_per_second": round(tokens_per_second, 1),
            "mfu": round(flops_per_second / self._peak, 4) if self._peak else None,
        }
        tokens = self._stage.tokens_before + (step - self._stage.start) * self._tokens_per_step
        for index, log in enumerate(self._logs):
            row = {name: x[index].item() for name, x in values_M.items()}
            log.write({"step": step, "tokens": tokens, **row, **rates})
        self._show(step, values_M, tokens_per_second)
        self._divergence.update(step, values_M["skipped"])

    def sync(self) -> None:
        """Write all rows to disk."""
        self.flush()
        for log in self._logs:
            log.sync()

    def _show(self, step: int, values_M: dict[str, Any], tokens_per_second: float) -> None:
        values = f"loss {_range(values_M['loss'])}  {tokens_per_second:,.0f} tok/s"
        if num_skipping := int((values_M["skipped"] > 0).sum()):
            values += f"  {num_skipping} not finite: update skipped"
        if "val_loss" in values_M:
            self._val_loss = f"  val {_range(values_M['val_loss'])}"
        values += self._val_loss
        (start, first), end = self._clock, self._stage.end
        mean = (step - first) * self._tokens_per_step / max(self._time - start, 1e-9)
        self.summary = f"loss {_range(values_M['loss'])}, {mean or tokens_per_second:,.0f} tok/s"
        tokens_left = (end - step) * self._tokens_per_step + self._later_tokens
        if tokens_left:
            values += f"  {duration(tokens_left / (mean or tokens_per_second))} left"
        self._bar.update(self._task, values=values)
        due = step >= self._next_line or "val_loss" in values_M
        if not self._console.is_terminal and due:
            # About twenty lines a run, however long it is.
            self._next_line = step + end / 20
            self._print_progress(f"{self._label}: step {step}/{end}  {values}")

    def _print_progress(self, line: str) -> None:
        """Print a line; in a notebook, replace the one before."""
        if not self._console.is_jupyter:
            self._console.print(line)
        elif self._notebook_line is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            text = {"text/plain": line}
            self._notebook_line = display(text, raw=True, display_id=True)
        else:
            self._notebook_line.update({"text/plain": line}, raw=True)


def _finish_time(scalar: jax.Array) -> float:
    """Wait for a scalar of an update, and return the clock's seconds then."""
    jax.block_until_ready(scalar)
    return time.perf_counter()


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
