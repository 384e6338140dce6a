"""What every task is, and the documents it asks about."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from data.retrieval import RetrievalDocument
from data.tokenizer import Tokenizer
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """One row of a forward pass, with questions in it. The answers are in place: teacher forcing.

    Attributes:
      tokens: int32 `[n]`, n <= length + 1.
      answers: int32 `[Q, 3]`, one row an answer: index of its first id, number of ids, distance in
        tokens (`data.retrieval.RetrievalDocument` says from where to where; tasks without a
        distance say what they put there).
      number: documents of one number are one draw for the statistics, however many rows: paired
        contexts of one text, depths of one haystack. Equal numbers are equal for all runs.
      first_query: number of the first answer within the document.
      num_bytes, num_words: int32 `[Q]`, of the answers' text, where the task measures text.
      segment_ids: int32 `[n - 1]`, as in a packed row of training; None: one document.
    """

    tokens: np.ndarray
    answers: np.ndarray
    number: int
    first_query: int = 0
    num_bytes: np.ndarray | None = None
    num_words: np.ndarray | None = None
    segment_ids: np.ndarray | None = None

    @classmethod
    def of(cls, document: RetrievalDocument, number: int) -> "Document":
        """A generated retrieval document."""
        return cls(tokens=document.tokens, answers=document.answers, number=number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """One question to a checkpoint: its parameters are fields, written `name(parameter=value)`.

    A new task is one new file in this folder with one subclass; the file's name is the task's.

    Attributes:
      kind: what its rows measure. "retrieval": exact matches by distance, from which effective
        context is estimated; "score": exact matches of the whole context, without a distance;
        "likelihood": nats a token of text; "accuracy": share of the tokens of text that are the
        most likely ones (`first_token_correct` of answers of one token).
    """

    kind: ClassVar[Literal["retrieval", "score", "likelihood", "accuracy"]]

    @abc.abstractmethod
    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> Sequence[Document]:
        """The documents of these numbers: a pure function of the arguments.

        Args:
          config: of the run; `config.evals.seed` decides random numbers, `config.data` where
            text comes from.
          length: tokens a model sees; documents have up to length + 1 ids.
          numbers: of the documents wanted; one may have several rows. Fewer come back where the
            data has no more.
          distances: ask mostly at these distances, first and last, in tokens; tasks that cannot
            choose distances do not look at it.

        Raises:
          ValueError: if it cannot ask at this length, with this tokenizer or without this data; it
            says what would help (the shortest length that works, the missing file).
        """

    @abc.abstractmethod
    def chance(self, tokenizer: Tokenizer) -> float:
        """Exact matches of a model that knows the format and nothing of the past."""
