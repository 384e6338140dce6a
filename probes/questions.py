"""Rows in which it is known what to look for: key-value documents, captured, with their places."""

import dataclasses
from typing import NamedTuple

import numpy as np

import evals
from experiment.loaded import LoadedRun
from model import transformer
from probes.inside import Capture, capture, check_capture


class Questions(NamedTuple):
    """Where the queries of some rows find their answers. Q questions, P pairs of a row.

    Attributes:
      row_Q: number of the captured row.
      query_Q: position whose logits answer.
      key_Q: position of the value that is asked for, which a head has to find.
      pairs_BP: positions of all values of a row that stand behind a key, ascending; -1 fills up.
    """

    row_Q: np.ndarray
    query_Q: np.ndarray
    key_Q: np.ndarray
    pairs_BP: np.ndarray

    @property
    def distances(self) -> np.ndarray:
        """From the query back to its key, tokens."""
        return self.query_Q - self.key_Q

    def others(self) -> np.ndarray:
        """Which pairs each question could mistake for its own: those before it, asked or not."""
        pairs_QP = self.pairs_BP[self.row_Q]
        is_before = (pairs_QP >= 0) & (pairs_QP <= self.query_Q[:, None])
        return is_before & (pairs_QP != self.key_Q[:, None])


def ask(
    run: LoadedRun, *, task: str = "kv", documents: int = 64, length: int | None = None
) -> tuple[Capture, Questions]:
    """Captures documents of key-value recall.

    Args:
      run: as `experiment.load` gives it.
      task: "kv", with parameters if wished.
      documents: how many; each is a row.
      length: tokens of a row; None: as trained.

    Raises:
      ValueError: for another task, whose documents do not say where everything is, no documents,
        a length at which it cannot be asked, or more than the memory holds.
    """
    if task.partition("(")[0].strip() != "kv":
        raise ValueError(f"probes look at kv, whose every key has a known place, not at {task}")
    if documents < 1:
        raise ValueError(f"documents must be at least 1, got {documents}")
    length = length or run.config.data.context_length
    check_capture(run, documents, length)
    # Version 2 alone marks each answer's first mention, at even distances too.
    config = dataclasses.replace(run.config, data=dataclasses.replace(run.config.data, documents=2))
    found = evals.parse(task).documents(
        evals.asked(config, run.tokenizer, length), range(documents)
    )
    tokens_BT = np.stack([document.tokens[:length] for document in found])
    answers = [document.answers[document.answers[:, 0] <= length] for document in found]
    row_Q = np.repeat(np.arange(len(found)), [len(each) for each in answers])
    start_Q, _, distance_Q = np.concatenate(answers).T
    query_Q = start_Q - 1
    return capture(run, tokens_BT), Questions(
        row_Q, query_Q, query_Q - distance_Q, _pairs(tokens_BT, run)
    )


def answered(inside: Capture, questions: Questions) -> np.ndarray:
    """Which questions the model answers right: bool `[Q]`."""
    hidden_1QD = inside.hidden_BTD[questions.row_Q, questions.query_Q][None]
    logits_1QV = transformer.unembed(inside.config, inside.params, hidden_1QD)
    wished_Q = inside.tokens_BT[questions.row_Q, questions.key_Q]
    return np.asarray(logits_1QV[0].argmax(axis=-1)) == wished_Q


def _pairs(tokens_BT: np.ndarray, run: LoadedRun) -> np.ndarray:
    """Of each row the positions of values behind keys, `[B, P]`."""
    tokenizer = run.tokenizer
    is_pair_BT = np.zeros(tokens_BT.shape, bool)
    is_pair_BT[:, 1:] = np.isin(tokens_BT[:, :-1], tokenizer.keys)
    is_pair_BT &= np.isin(tokens_BT, tokenizer.values)
    most = int(is_pair_BT.sum(axis=1).max(initial=0))
    pairs_BP = np.full((len(tokens_BT), most), -1)
    for row, is_pair_T in enumerate(is_pair_BT):
        places = np.flatnonzero(is_pair_T)
        pairs_BP[row, : len(places)] = places
    return pairs_BP
