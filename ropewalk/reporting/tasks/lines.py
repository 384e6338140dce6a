"""The place of lines on a page."""

from ropewalk.reporting.task_view import TaskView


class Lines(TaskView):
    """View of `data.tasks.lines`."""

    order = 2
