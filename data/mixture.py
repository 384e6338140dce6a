"""Text rows and retrieval rows, mixed by weight."""

import dataclasses
import functools

import numpy as np

import data.tasks
from data.config import DataConfig
from data.packing import Row, TextRows
from data.shuffle import interleaved
from data.store import TokenStore
from data.task import Task, TaskContext
from data.tokenizer import Tokenizer
from settings import expressions
from settings.folders import classes_in


@functools.cache
def retrieval_task(text: str) -> Task:
    """The task that `text` names; raises ValueError as `settings.expressions.build` does."""
    return expressions.build(text, classes_in(data.tasks, Task), Task, kind="retrieval task")


@dataclasses.dataclass(frozen=True)
class RetrievalRows:
    """Row number i is document i of one task, endless.

    A document has a row to itself, padded with segment 0. The loss is on answers only: the rest of
    it is random, and learning its frequencies would drown the little there is to learn.
    """

    task: str  # as text: a class of the user's own file would not reach a worker process
    context: TaskContext

    def __getitem__(self, index: int) -> Row:
        document, *_ = retrieval_task(self.task).documents(self.context, range(index, index + 1))
        count = len(document.tokens) - 1
        columns = {
            "tokens": document.tokens[:-1],
            "targets": document.tokens[1:],
            "positions": np.arange(count, dtype=np.int32),
            "segment_ids": np.ones(count, np.int32),
            "loss_mask": document.loss_mask(),
        }
        padding = (0, self.context.length - count)
        return {name: np.pad(column, padding) for name, column in columns.items()}


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Kinds of rows interleaved evenly, so that every batch holds its share of each."""

    sources: list[TextRows | RetrievalRows]
    weights: list[float]

    def __getitem__(self, index: int) -> Row:
        source, own = interleaved(index, self.weights)
        return self.sources[source][own]


def mixture(
    config: DataConfig, store: TokenStore | None, tokenizer: Tokenizer, split: str = "train"
) -> Mixture:
    """All rows of a split, endless, each found by its number at once.

    Args:
      store: of the split's text; None where there is none (config.source == "retrieval").
      split: "train", or anything else for documents that training never holds.
    """
    sources: list[TextRows | RetrievalRows] = []
    weights: list[float] = []
    fraction = 1.0 if store is None else config.retrieval_fraction
    if store is not None and fraction < 1:
        sources.append(TextRows(store, config.context_length, seed=config.seed))
        weights.append(1 - fraction)
    if fraction > 0:
        context = TaskContext(
            data=config,
            tokenizer=tokenizer,
            length=config.context_length,
            seed=config.seed,
            split=split,
        )
        for task in config.retrieval_tasks:
            rows = RetrievalRows(task, context)
            rows[0]  # a document that cannot fit is refused now, not in a worker later
            sources.append(rows)
            weights.append(fraction / len(config.retrieval_tasks))
    return Mixture(sources, weights)
