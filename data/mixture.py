"""Text rows and retrieval rows, mixed by weight."""

import sys
from collections.abc import Sequence

import grain
import numpy as np

from data import tasks
from data.config import DataConfig
from data.packing import Row, TextRows
from data.store import TokenStore
from data.task import Asked
from data.tokenizer import Tokenizer


class RetrievalRows:
    """A grain random-access source, endless: row number i is training document i of one task.

    A document has a row to itself, padded with segment 0. The loss is on answers only: the rest of
    it is random, and learning its frequencies would drown the little there is to learn.
    """

    def __init__(self, task: str, asked: Asked):
        # As text: a class of the user's own file would not reach a worker process.
        self._task, self._asked = task, asked

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> Row:
        document, *_ = tasks.parse(self._task).documents(self._asked, range(index, index + 1))
        T = self._asked.length
        count = len(document.tokens) - 1
        mask = np.zeros(T, np.float32)
        mask[:count] = document.loss_mask()
        tokens, targets, positions, segment_ids = np.zeros((4, T), np.int32)
        tokens[:count] = document.tokens[:-1]
        targets[:count] = document.tokens[1:]
        positions[:count] = np.arange(count)
        segment_ids[:count] = 1
        return {
            "tokens": tokens,
            "targets": targets,
            "positions": positions,
            "segment_ids": segment_ids,
            "loss_mask": mask,
        }

    def __repr__(self) -> str:
        length, seed = self._asked.length, self._asked.seed
        return f"RetrievalRows({self._task}, context_length={length}, seed={seed})"


def mixture(
    config: DataConfig, store: TokenStore | None, tokenizer: Tokenizer
) -> grain.MapDataset[Row]:
    """All training rows, endless, each found by its number at once.

    The kinds of rows are interleaved evenly, so every batch holds its share of each.

    Args:
      store: of the text; None where there is none (config.source == "retrieval").
    """
    sources: list[TextRows | RetrievalRows] = []
    weights: list[float] = []
    fraction = 1.0 if store is None else config.retrieval_fraction
    if store is not None and fraction < 1:
        sources.append(TextRows(store, config.context_length, seed=config.seed))
        weights.append(1 - fraction)
    if fraction > 0:
        asked = Asked(
            data=config,
            tokenizer=tokenizer,
            length=config.context_length,
            seed=config.seed,
            split="train",
        )
        for task in config.retrieval_tasks:
            rows = RetrievalRows(task, asked)
            rows[0]  # a document that cannot fit is refused now, not in a worker later
            sources.append(rows)
            weights.append(fraction / len(config.retrieval_tasks))
    parts: Sequence[grain.MapDataset[Row]] = [grain.MapDataset.source(s) for s in sources]
    return grain.MapDataset.mix(parts, weights)
