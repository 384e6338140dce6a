"""Scores answers in documents: one forward pass for a batch, all members of a sweep at once.

Teacher-forced exact match is greedy decoding: if the argmax after the true prefix is right at
every position of the answer, greedy decoding writes that answer, and if it does not, the first
wrong id is where greedy decoding leaves it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.retrieval import RetrievalDocument
from model import loss, transformer
from model.config import ModelConfig
from model.loss import TokenScores
from model.positions import PositionTable
from model.transformer import Params

# Tokens of a forward pass, over all members: enough to fill a small machine's matrix products.
_TOKENS_PER_PASS = 2**14


class AnswerScores(NamedTuple):
    """How members do on answers, each field `[members, answers]`.

    Attributes:
      exact_match: bool, every id of the answer is the argmax.
      first_token_correct: bool.
      nll: float64, nats, mean over the answer's ids.
      rank: int32, of the first id; 0 is best.
    """

    exact_match: np.ndarray
    first_token_correct: np.ndarray
    nll: np.ndarray
    rank: np.ndarray


def score(
    config: ModelConfig,
    params: Params,
    tables_for: Callable[[Sequence[int]], PositionTable],
    documents: Sequence[RetrievalDocument],
    length: int,
    *,
    advance: Callable[[int], None] = lambda documents_done: None,
) -> AnswerScores:
    """Scores every answer of `documents`, in order.

    Args:
      config: the network; its schedule and window are not read, the tables are.
      params: of all members, stacked in front (`[members, ...]`).
      tables_for: from the numbers of tokens of a batch's rows to the tables of all members,
        stacked: `[members, L, ...]`, or `[members, rows, L, ...]` where rows have their own.
      documents: at most length + 1 ids each.
      length: what every document is padded to, so that there is one compilation.
      advance: called with the number of documents just done.
    """
    num_members = len(jax.tree.leaves(params)[0])
    B = min(len(documents), max(1, _TOKENS_PER_PASS // (num_members * length)))
    parts = []
    for start in range(0, len(documents), B):
        batch = documents[start : start + B]
        tokens_BT = np.zeros((B, length + 1), np.int32)
        segment_ids_BT = np.zeros((B, length), np.int32)
        for row, document in enumerate(batch):
            tokens_BT[row, : len(document.tokens)] = document.tokens
            segment_ids_BT[row, : len(document.tokens) - 1] = 1
        row_lengths = np.full(B, length)
        row_lengths[: len(batch)] = [len(document.tokens) - 1 for document in batch]
        tables = tables_for(row_lengths.tolist())
        nll, correct, rank = jax.device_get(
            _token_scores(
                config, params, tables, tokens_BT[:, :-1], tokens_BT[:, 1:], segment_ids_BT
            )
        )
        for row, document in enumerate(batch):
            parts.append(
                score_answers(nll[:, row], correct[:, row], rank[:, row], document.answers)
            )
        advance(len(batch))
    return AnswerScores(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


@functools.partial(jax.jit, static_argnames="config")
def _token_scores(config, params, tables, tokens_BT, targets_BT, segment_ids_BT) -> TokenScores:
    """Scores of every position, `[members, B, T]`."""
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)

    def member(params, table):
        hidden = functools.partial(transformer.hidden, config, params)
        if table.window.ndim == 1:
            hidden_BTD = hidden(table, tokens_BT, positions_BT, segment_ids_BT)
        else:  # a table a row: each is a batch of one
            rows = tokens_BT[:, None], positions_BT[:, None], segment_ids_BT[:, None]
            hidden_BTD = jax.vmap(hidden)(table, *rows)[:, 0]
        return loss.token_scores(config, params, hidden_BTD, targets_BT)

    # Accelerators multiply float32 in fewer bits unless told otherwise, and then logits tie.
    with jax.default_matmul_precision("highest"):
        return jax.vmap(member)(params, tables)


def score_answers(nll, correct, rank, answers) -> AnswerScores:
    """From scores of a document's positions to scores of its answers.

    Args:
      nll, correct, rank: `[members, T]`; position p is about id p + 1.
      answers: `[Q, 3]`: index of the answer's first id, number of ids, distance.
    """
    first, count = answers[:, 0] - 1, answers[:, 1]
    # Where a model's logits are NaN nothing compares below the target, which is no success.
    finite = np.isfinite(nll)
    correct, rank = correct & finite, np.where(finite, rank, np.iinfo(np.int32).max)

    def total(x):
        before = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x, axis=1, dtype=float)], axis=1)
        return before[:, first + count] - before[:, first]

    return AnswerScores(
        exact_match=total(correct) == count,
        first_token_correct=correct[:, first],
        nll=total(nll) / count,
        rank=rank[:, first],
    )
