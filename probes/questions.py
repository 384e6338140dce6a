"""Captured documents whose answers are copies, and the positions of questions and answers."""

from typing import NamedTuple

import numpy as np

from ropewalk import evals
from ropewalk.data.tasks.kv import Kv
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.model import transformer
from ropewalk.probes.inside import Capture, capture, check_capture


class Questions(NamedTuple):
    """Positions of questions and answers in captured rows. Q questions, P pairs of a row.

    Attributes:
      row_Q: number of the captured row.
      query_Q: position whose logits predict the answer.
      key_Q: position of the value to retrieve.
      pairs_BP: positions of all values of a row that follow a key, ascending; padded with -1. In
        other tasks than kv every id is the value of the id before it.
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
    run: LoadedRun, *, task: str = "kv", documents: int = 64, length: int | None = None
) -> tuple[Capture, Questions]:
    """Capture documents of a task whose answers are copies of single ids.

    Args:
      run: the result of `experiment.load`.
      task: expression of the task, such as lagcopy(text=natural) for a language model.
      documents: number of documents; each is a row.
      length: tokens of a row; None: the trained context.

    Raises:
      ValueError: for no documents, a length that the task does not fit, more than the memory holds,
        or a task with other answers or with several rows of a document.
    """
    if documents < 1:
        raise ValueError(f"documents must be at least 1, got {documents}")
    length = length or run.config.data.context_length
    check_capture(run, documents, length)
    context = evals.task_context(run.config, run.tokenizer, length)
    parsed = evals.parse(task)
    generated = parsed.documents(context, range(documents))
    for document in generated:
        tokens, (start, count, distance) = document.tokens, document.answers.T
        is_single = (count == 1).all() and (distance >= 0).all()
        if not (is_single and (tokens[start] == tokens[start - 1 - distance]).all()):
            raise ValueError(f"answers of {task} are no copies of single ids, as those of kv are")
        if len(tokens) <= length:
            raise ValueError(
                f"{task} has a document of {len(tokens) - 1} tokens and one more, and a row has "
                f"{length}; give --length {len(tokens) - 1}, or a task that fills its length"
            )
    if len(generated) > documents:  # intervals are over documents, as is the check of memory
        raise ValueError(f"{task} has several rows of a document; leave out crops")
    tokens_BT = np.stack([document.tokens[:length] for document in generated])
    answers = [document.answers for document in generated]
    row_Q = np.repeat(np.arange(len(generated)), list(map(len, answers)))
    start_Q, _, distance_Q = np.concatenate(answers).T
    query_Q = start_Q - 1
    if isinstance(parsed, Kv):
        pairs_BP = _find_pairs(tokens_BT, run)
    else:
        pairs_BP = np.tile(np.arange(1, length), (len(generated), 1))
    return capture(run, tokens_BT), Questions(row_Q, query_Q, query_Q - distance_Q, pairs_BP)


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
