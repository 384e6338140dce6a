"""Evaluation of checkpoints: one task per file in `evals.tasks` and `data.tasks`.

A task is a frozen dataclass (`data.task.Task`) that makes documents with questions and summarizes
the answers. `evals.runner` scores questions with `evals.score`: token ids, teacher-forced, one
forward pass. Every answer becomes a row of one schema (`evals.rows`), and `evals.estimate` computes
effective context from rows alone. Command lines and rows write a task as an expression,
`needle(haystack=noise)`: the file's name, then the fields that differ from their defaults. A task
in a file of the user's is `path/to/mine.py:Echo(n=2)`.
"""

import functools
from collections.abc import Callable, Iterable

import ropewalk.data.tasks
from ropewalk.data.task import Task, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.evals import tasks as eval_tasks
from ropewalk.experiment.config import ExperimentConfig
from ropewalk.experiment.run import RunDirectory
from ropewalk.utils import expressions
from ropewalk.utils.plugins import classes_in


@functools.cache
def all_tasks() -> dict[str, type[Task]]:
    """Return every task by the name of its file; `evals.tasks` overrides `data.tasks`."""
    return classes_in(ropewalk.data.tasks, Task) | classes_in(eval_tasks, Task)


@functools.cache
def parse(text: str) -> Task:
    """Build a task from an expression; raises ValueError as `utils.expressions.build`."""
    return expressions.build(text, all_tasks(), Task, kind="task")


def parse_all(texts: Iterable[str]) -> list[Task]:
    """Return the tasks that expressions name, each once; raises ValueError as `parse`."""
    tasks = [task for text in texts for task in parse(text).expand()]
    return list({task.expression: task for task in tasks}.values())


def task_context(
    config: ExperimentConfig,
    tokenizer: Tokenizer,
    length: int,
    run: RunDirectory | None = None,
) -> TaskContext:
    """Return the context in which a task makes documents to evaluate a run at `length` tokens.

    `run` is the directory whose held-out text is read; None: parameters in memory.
    """
    return TaskContext(
        data=config.data,
        tokenizer=tokenizer,
        length=length,
        seed=config.evals.seed,
        held_out=run.held_out_path if run else None,
        held_out_fingerprints=run.held_out_fingerprints if run else (),
    )


def find_unfit(
    config: ExperimentConfig, tokenizer: Tokenizer | None, run: RunDirectory
) -> list[str]:
    """Return why an evaluation of `run` will skip tasks of its config, as far as that is known.

    The run may not be trained yet: text that its training prepares is not read. Without its
    tokenizer only the files of tasks are looked for.
    """
    reasons, started = [], run if run.is_started() else None
    lengths = config.evals.lengths or (config.data.context_length,)
    contexts = [task_context(config, tokenizer, x, started) for x in lengths] if tokenizer else []
    for task in parse_all(config.train.eval_tasks + config.evals.tasks):
        names_text = getattr(task, "path", None) is not None
        has_text = names_text or not config.data.has_text or run.held_out_path.exists()
        try:
            task.check_files()
        except ValueError as error:
            reasons.append(str(error))
            continue
        for context in contexts:
            try:
                task.check(context)
                if has_text:
                    task.documents(context, range(1))
            except ValueError as error:
                reasons.append(str(error))
    return list(dict.fromkeys(reasons))


def while_training(config: ExperimentConfig) -> Callable[..., list[dict[str, float]]] | None:
    """Return a function that evaluates members of a sweep on `train.eval_tasks`, if there are any.

    Raises:
      ValueError: for an unknown task in `train.eval_tasks` or `evals.tasks`, and for a length of
        `evals.lengths` that does not fit the memory.
    """
    parse_all(config.train.eval_tasks + config.evals.tasks)
    if not config.train.eval_tasks:
        return None
    from ropewalk.evals import runner  # late: most runs have no such tasks

    runner.check_lengths(config)
    # Not `Task.num_documents`, which may be large: the evaluation repeats during training.
    options = runner.Options(tasks=config.train.eval_tasks, documents=config.evals.documents)
    return functools.partial(runner.evaluate_in_memory, options=options)
