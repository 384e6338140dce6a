"""The place of kv on a page."""

from ropewalk.reporting.task_view import TaskView


class Kv(TaskView):
    """View of `data.tasks.kv`."""

    order = 0
