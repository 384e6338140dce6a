"""Captured documents whose answers are copies, and the positions of questions and answers."""

from typing import NamedTuple

import numpy as np

from ropewalk import evals
from ropewalk.data.tasks.kv import Kv
from ropewalk.experiment.loaded import LoadedRun
from ropewalk.probes.capturing import Capture, capture, check_capture


class Questions(NamedTuple):
    """Positions of Q questions and their answers in captured rows.

    Attributes:
      row_Q: number of the captured row.
      query_Q: position whose logits predict the answer.
      key_Q: position of the value to retrieve.
      is_value_BT: which tokens are a value that follows a key. In other tasks than kv every id is
        the value of the id before it.
    """

    row_Q: np.ndarray
    query_Q: np.ndarray
    key_Q: np.ndarray
    is_value_BT: np.ndarray

    @property
    def distances(self) -> np.ndarray:
        """Distance from the query back to its key, tokens."""
        return self.query_Q - self.key_Q

    def distractors(self) -> np.ndarray:
        """Return which values precede each question and are not its answer, bool `[Q, T]`."""
        indices_T = np.arange(self.is_value_BT.shape[1])
        is_before_QT = (indices_T <= self.query_Q[:, None]) & (indices_T != self.key_Q[:, None])
        return self.is_value_BT[self.row_Q] & is_before_QT


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
    is_value_BT = np.ones(tokens_BT.shape, bool)
    is_value_BT[:, 0] = False
    if isinstance(parsed, Kv):
        is_value_BT[:, 1:] = np.isin(tokens_BT[:, :-1], run.tokenizer.keys)
        is_value_BT &= np.isin(tokens_BT, run.tokenizer.values)
    return capture(run, tokens_BT), Questions(row_Q, query_Q, query_Q - distance_Q, is_value_BT)


def grade_answers(captured: Capture, questions: Questions) -> np.ndarray:
    """Return which questions the model answers correctly, bool `[Q]`."""
    hidden_1QD = captured.hidden_BTD[questions.row_Q, questions.query_Q][None]
    logits_1QV = captured.unembed(hidden_1QD)
    answer_Q = captured.tokens_BT[questions.row_Q, questions.key_Q]
    return np.asarray(logits_1QV[0].argmax(axis=-1)) == answer_Q
