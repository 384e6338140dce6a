"""Captured documents of key-value recall, and the positions of their questions and answers."""

from typing import NamedTuple

import numpy as np

from ropewalk import evals
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.model import transformer
from ropewalk.probes.inside import Capture, capture, check_capture


class Questions(NamedTuple):
    """Positions of questions and answers in captured rows. Q questions, P pairs of a row.

    Attributes:
      row_Q: number of the captured row.
      query_Q: position whose logits predict the answer.
      key_Q: position of the value to retrieve.
      pairs_BP: positions of all values of a row that follow a key, ascending; padded with -1.
    """

    row_Q: np.ndarray
    query_Q: np.ndarray
    key_Q: np.ndarray
    pairs_BP: np.ndarray

    @property
    def distances(self) -> np.ndarray:
        """Distance from the query back to its key, tokens."""
        return self.query_Q - self.key_Q

    def distractors(self) -> np.ndarray:
        """Return which pairs precede each question and are not its answer, bool `[Q, P]`."""
        pairs_QP = self.pairs_BP[self.row_Q]
        is_before = (pairs_QP >= 0) & (pairs_QP <= self.query_Q[:, None])
        return is_before & (pairs_QP != self.key_Q[:, None])


def capture_recall(
    run: LoadedRun, *, documents: int = 64, length: int | None = None
) -> tuple[Capture, Questions]:
    """Capture documents of key-value recall.

    Args:
      run: the result of `experiment.load`.
      documents: number of documents; each is a row.
      length: tokens of a row; None: the trained context.

    Raises:
      ValueError: for no documents, a length that the task kv does not fit, or more than the memory
        holds.
    """
    if documents < 1:
        raise ValueError(f"documents must be at least 1, got {documents}")
    length = length or run.config.data.context_length
    check_capture(run, documents, length)
    context = evals.task_context(run.config, run.tokenizer, length)
    generated = evals.parse("kv").documents(context, range(documents))
    tokens_BT = np.stack([document.tokens[:length] for document in generated])
    answers = [document.answers[document.answers[:, 0] <= length] for document in generated]
    row_Q = np.repeat(np.arange(len(generated)), [len(rows) for rows in answers])
    start_Q, _, distance_Q = np.concatenate(answers).T
    query_Q = start_Q - 1
    questions = Questions(row_Q, query_Q, query_Q - distance_Q, _find_pairs(tokens_BT, run))
    return capture(run, tokens_BT), questions


def grade_answers(inside: Capture, questions: Questions) -> np.ndarray:
    """Return which questions the model answers correctly, bool `[Q]`."""
    hidden_1QD = inside.hidden_BTD[questions.row_Q, questions.query_Q][None]
    logits_1QV = transformer.unembed(inside.config, inside.params, hidden_1QD)
    answer_Q = inside.tokens_BT[questions.row_Q, questions.key_Q]
    return np.asarray(logits_1QV[0].argmax(axis=-1)) == answer_Q


def _find_pairs(tokens_BT: np.ndarray, run: LoadedRun) -> np.ndarray:
    """Return the positions of values that follow keys, `[B, P]`, padded with -1."""
    tokenizer = run.tokenizer
    is_pair_BT = np.zeros(tokens_BT.shape, bool)
    is_pair_BT[:, 1:] = np.isin(tokens_BT[:, :-1], tokenizer.keys)
    is_pair_BT &= np.isin(tokens_BT, tokenizer.values)
    num_pairs = int(is_pair_BT.sum(axis=1).max(initial=0))
    pairs_BP = np.full((len(tokens_BT), num_pairs), -1)
    for pairs_P, is_pair_T in zip(pairs_BP, is_pair_BT, strict=True):
        positions = np.flatnonzero(is_pair_T)
        pairs_P[: len(positions)] = positions
    return pairs_BP
