"""WHAT is asked of a checkpoint: one task a file in `evals.tasks` and `data.tasks`.

A task is a frozen dataclass (`data.task.Task`) that makes documents with questions in them, and
says what the answers show. Questions are scored by ids, teacher-forced, in one forward pass
(`evals.score`, led by `evals.runner`), every answer becomes a row of one schema (`evals.rows`), and
effective context is estimated from these rows alone (`evals.estimate`). On a command line and in
rows a task is written as an expression, `needle(haystack=noise)`: the file's name, then the fields
that differ from their defaults; `path/to/mine.py:Echo(n=2)` is a task of the user's own.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import data.tasks
import evals.tasks as asked_tasks
from data.task import Task, TaskContext
from data.tokenizer import Tokenizer
from experiment.config import ExperimentConfig
from settings import expressions
from settings.folders import classes_in


@functools.cache
def all_tasks() -> dict[str, type[Task]]:
    """Every task by the name of its file; one of both folders is that of `evals.tasks`."""
    return classes_in(data.tasks, Task) | classes_in(asked_tasks, Task)


@functools.cache
def parse(text: str) -> Task:
    """The task that `text` names; raises ValueError as `settings.expressions.build` does."""
    return expressions.build(text, all_tasks(), Task, kind="task")


def asked(
    config: ExperimentConfig,
    tokenizer: Tokenizer,
    length: int,
    distances: tuple[int, int] | None = None,
    held_out: Path | None = None,
) -> TaskContext:
    """What a task is to make documents for, when a run is evaluated at `length` tokens."""
    return TaskContext(
        data=config.data,
        tokenizer=tokenizer,
        length=length,
        seed=config.evals.seed,
        distances=distances,
        held_out=held_out,
    )


def while_training(config: ExperimentConfig) -> Callable[..., list[dict[str, float]]] | None:
    """What asks members of a sweep the config's `train.eval_tasks` while they train.

    Raises:
      ValueError: for a task that does not exist, also of those that `evaluate.py` will ask, and
        for a length of `evals.lengths` that does not fit the memory.
    """
    for task in config.train.eval_tasks + config.evals.tasks:
        parse(task)
    if not config.train.eval_tasks:
        return None
    from evals import runner  # late: most runs ask nothing

    runner.check_lengths(config)
    # No more than said: a task may ask for many documents, and this is asked again and again.
    options = runner.Options(tasks=config.train.eval_tasks, documents=config.evals.documents)
    return functools.partial(runner.ask_in_memory, options=options)
