"""Accuracy by context length and depth of the needle."""

import numpy as np

from ropewalk.evals.rows import Rows
from ropewalk.reporting.task_view import Grid, TaskView


class Needle(TaskView):
    """View of `evals.tasks.needle`."""

    def grid(self, rows: Rows) -> Grid:
        """Return accuracy by depth, 1 - distance / length: 0 is the start of the context."""
        depths = self.task.depths
        depth = np.clip(1 - rows["distance"] / rows["length"], 0, 1)
        index = np.rint(depth * (depths - 1)).astype(int)
        counts = np.bincount(index, minlength=depths)
        right = np.bincount(index, rows["exact_match"], minlength=depths)
        accuracy = np.where(counts, right / np.maximum(counts, 1), np.nan)
        names = [f"depth {depth:.0%}" for depth in np.linspace(0, 1, depths)]
        edges = np.linspace(0, 1, depths + 1)
        return Grid(names, edges[:-1], edges[1:], accuracy, counts)
