"""How far an evaluation has come: a bar on a terminal, a line now and then in a log."""

import time

from rich import progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TimeRemainingColumn

LINE_EVERY = 15.0  # seconds


class Progress(progress.Progress):
    """Counts documents."""

    def __init__(self, console: Console):
        shown = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        super().__init__(*shown, console=console, transient=True, disable=not console.is_terminal)
        self._next_line = time.monotonic() + LINE_EVERY

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Counts `advance` documents more."""
        super().advance(task_id, advance)
        if not self.console.is_terminal and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            task = self.tasks[task_id]
            counted = f"{task.completed:,.0f} of {task.total or 0:,.0f} documents"
            self.console.print(f"{task.description}: {counted}", highlight=False, markup=False)
