"""WHAT is asked of a checkpoint: one task a file in `evals.tasks`, found by walking that folder.

A task is a frozen dataclass (`evals.task.Task`) that makes documents with questions in them.
Questions are scored by ids, teacher-forced, in one forward pass (`evals.score`), every answer
becomes a row of one schema (`evals.rows`), and effective context is estimated from rows alone
(`evals.estimate`). On a command line and in rows a task is written as an expression,
`needle(haystack=noise)`: the file's name, then the fields that differ from their defaults.
"""

import dataclasses
import functools

import evals.tasks as evals_tasks
from evals.task import Task
from settings import expressions
from settings.folders import classes_in


@functools.cache
def all_tasks() -> dict[str, type[Task]]:
    """Every task by the name of its file."""
    return classes_in(evals_tasks, Task)


@functools.cache
def parse(text: str) -> Task:
    """The task that `text` names; raises ValueError as `settings.expressions.build` does."""
    return expressions.build(text, all_tasks(), Task, kind="task")


def expression(task: Task) -> str:
    """The task as text, defaults left out; `parse` reads it back."""
    fields = [field.name for field in dataclasses.fields(task)]
    return expressions.render(type(task).__module__.rpartition(".")[2], task, fields)
