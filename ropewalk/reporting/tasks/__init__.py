"""Views of tasks on a page (`reporting.task_view.TaskView`), one file per task."""
