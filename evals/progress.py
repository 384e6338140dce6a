"""Progress of an evaluation: a bar on a terminal, a line every 15 seconds in a log."""

import time

from rich import progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn

from utils.messages import duration

LINE_EVERY = 15.0  # seconds


class Progress(progress.Progress):
    """Counter of documents that predicts the remaining time from the FLOP/s so far.

    Attributes:
      flops_left: FLOPs of the documents not counted yet; 0: no prediction.
    """

    def __init__(self, console: Console):
        columns = (
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._start = time.monotonic()
        self._next_line = self._start + LINE_EVERY
        self._flops_done = self.flops_left = 0.0

    def add_task(self, *arguments, **options) -> TaskID:
        """Add a task without a prediction of the remaining time."""
        return super().add_task(*arguments, **options, left="")

    def advance(self, task_id: TaskID, advance: float = 1, flops: float = 0.0) -> None:
        """Count `advance` more documents, of `flops` FLOPs together."""
        self._flops_done, self.flops_left = self._flops_done + flops, self.flops_left - flops
        left = ""
        if self._flops_done and self.flops_left > 0:
            elapsed = time.monotonic() - self._start
            left = f"about {duration(elapsed * self.flops_left / self._flops_done)} left"
        self.update(task_id, advance=advance, left=left)
        if not self.console.is_terminal and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            task = self.tasks[task_id]
            counted = f"{task.completed:,.0f} of {task.total or 0:,.0f} documents"
            line = ", ".join(filter(None, [f"{task.description}: {counted}", left]))
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
