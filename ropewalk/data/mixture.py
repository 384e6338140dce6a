"""Rows of text and of retrieval documents, mixed by weight."""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import ropewalk.data.tasks
from ropewalk.data.config import DataConfig
from ropewalk.data.domains import Domain
from ropewalk.data.packing import Row, TextRows
from ropewalk.data.task import Task, TaskContext
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.utils import expressions
from ropewalk.utils.plugins import classes_in

# Up to here a pass is worth almost as much as new text (Muennighoff et al., arXiv 2305.16264).
MAX_EPOCHS = 4


@functools.cache
def retrieval_task(text: str) -> Task:
    """Return the task of an expression; raise ValueError as `utils.expressions.build` does."""
    return expressions.build(
        text, classes_in(ropewalk.data.tasks, Task), Task, kind="retrieval task"
    )


@dataclasses.dataclass(frozen=True)
class RetrievalRows:
    """Endless rows: row i is document i of one task, padded with segment 0.

    The loss counts answers only. The other ids are random, and their loss would be most of the sum.
    """

    task: str  # an expression, because worker processes cannot unpickle a class of a user's file
    context: TaskContext

    def __len__(self) -> int:
        return sys.maxsize

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
    """Sources of rows, interleaved evenly, so that every batch has its share of each source."""

    sources: list[TextRows | RetrievalRows]
    weights: list[float]

    @functools.cached_property
    def _mixed(self) -> Any:
        import grain  # slow to import

        parts = [grain.MapDataset.source(source) for source in self.sources]
        return grain.MapDataset.mix(parts, self.weights)

    def __getitem__(self, index: int) -> Row:
        return self._mixed[index]

    def notes(self, num_rows: int) -> list[str]:
        """Return a line for each of several texts: its part of `num_rows` rows, and passes over it.

        One text has a line if it is read more than `MAX_EPOCHS` times.
        """
        lines = []
        for rows, weight in zip(self.sources, self.weights, strict=True):
            if isinstance(rows, TextRows):
                share = weight / sum(self.weights)
                epochs = rows.epochs(share * num_rows)
                warning = "warning: " * (epochs > MAX_EPOCHS)
                passes = describe_epochs(epochs, rows.name)
                lines.append(f"{warning}{100 * share:.3g}% of the rows: {passes}")
        return [line for line in lines if len(lines) > 1 or line.startswith("warning")]


def describe_epochs(epochs: float, what: str = "the text") -> str:
    """Describe passes over a text; above `MAX_EPOCHS`, say that they gain less than new text."""
    passes = f"{epochs:.2g}" if epochs < 100 else f"{epochs:,.0f}"
    passes += f" passes over {what}"
    if epochs <= MAX_EPOCHS:
        return passes
    return (
        f"{passes}, more than {MAX_EPOCHS}: each further one gains less than new text; use more "
        "text, a lower train.num_steps, or a smaller model"
    )


def mixture(
    config: DataConfig, texts: Sequence[Domain], tokenizer: Tokenizer, split: str = "train"
) -> Mixture:
    """Return the endless rows of a split, with random access.

    Args:
      config: shares, tasks, context length and seed.
      texts: text of the split; empty if the source has none.
      tokenizer: tokenizer of the texts.
      split: "train"; any other name gives retrieval documents that training never contains.

    Raises:
      ValueError: if a text is shorter than a row.
    """
    sources: list[TextRows | RetrievalRows] = []
    weights: list[float] = []
    fraction = config.retrieval_fraction if texts else 1.0
    length, seed = config.context_length, config.seed
    for text in texts if fraction < 1 else ():
        sources.append(TextRows(text.store, length, seed=seed, name=text.name))
        weights.append((1 - fraction) * text.share)
    if fraction > 0:
        context = TaskContext(
            data=config, tokenizer=tokenizer, length=length, seed=seed, split=split
        )
        for task in config.retrieval_tasks:
            rows = RetrievalRows(task, context)
            rows[0]  # raises an error for a document that does not fit here, not in a worker
            sources.append(rows)
            weights.append(fraction / len(config.retrieval_tasks))
    return Mixture(sources, weights)
