"""Base class of tasks: documents with questions at known distances.

A task is one file with one frozen dataclass. `data.tasks` holds tasks for training and evaluation,
`evals.tasks` tasks for evaluation only. This module needs only numpy, because grain's worker
processes make training documents from tasks.
"""

import abc
import dataclasses
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ropewalk.data.config import DataConfig
from ropewalk.data.tokenizer import Tokenizer
from ropewalk.utils.checks import check
from ropewalk.utils.expressions import render
from ropewalk.utils.plugins import name_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """Ids with questions and their answers, for teacher forcing.

    Attributes:
      tokens: int32 `[n]`, n <= length + 1, BOS at 0.
      answers: int32 `[Q, 3]`, one row per answer: index of its first id, number of ids, distance.
        The logits at tokens[start - 1] predict the answer, and tokens[start - 1 - distance] is the
        first id of the earlier occurrence of its content. Tasks without a distance document the
        value.
      number: rows of one number are one sample for the statistics, such as several contexts of one
        text or depths of one haystack. Equal numbers mean equal documents in all runs.
      first_query: number of the first answer within the document.
      num_bytes, num_words: int32 `[Q]`, size of the answers' text, if the task measures text.
      segment_ids: int32 `[n - 1]`, as in a packed row of training; None: one document.
      first_position: position of BOS.
      merged: bool `[Q]`, whether the first or last id of an answer holds text beside the answer, as
        where a tokenizer joins a space to a number; None: no answer does.
    """

    tokens: np.ndarray
    answers: np.ndarray
    number: int = 0
    first_query: int = 0
    num_bytes: np.ndarray | None = None
    num_words: np.ndarray | None = None
    segment_ids: np.ndarray | None = None
    first_position: int = 0
    merged: np.ndarray | None = None

    @classmethod
    def from_lists(cls, tokens: Any, answers: Any, **fields: Any) -> "Document":
        """Return a document from lists or arrays of integers."""
        return cls(
            tokens=np.asarray(tokens, np.int32), answers=np.asarray(answers, np.int32), **fields
        )

    def loss_mask(self) -> np.ndarray:
        """Return float32 `[n - 1]`, 1 at the positions whose logits predict an answer's ids."""
        mask = np.zeros(len(self.tokens) - 1, np.float32)
        start, count = self.answers[:, 0], self.answers[:, 1]
        for i in range(count.max(initial=0)):
            mask[start[count > i] - 1 + i] = 1
        return mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskContext:
    """Settings from which a task makes documents.

    Attributes:
      data: source of text, and the trained length.
      tokenizer: tokenizer of the run.
      length: context length of the model; documents have up to length + 1 ids.
      seed: decides random numbers.
      split: "train"; any other name gives documents that training never contains.
      held_out: folder of the held-out documents that the run keeps; without it, text comes from the
        prepared data.
      held_out_fingerprints: of the held-out texts of the run's stages; text with another one is
        refused. Empty: unknown.
    """

    data: DataConfig
    tokenizer: Tokenizer
    length: int
    seed: int
    split: str = "validation"
    held_out: Path | None = None
    held_out_fingerprints: tuple[str, ...] = ()


class Sample(NamedTuple):
    """Inputs of one document.

    Attributes:
      number: number of the document.
      random: random generator of this document.
      source: item of `Task.sources`, such as a text.
    """

    number: int
    random: np.random.Generator
    source: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """A task with parameters as fields, written `name(parameter=value)`.

    A new task is one new file with one subclass; the file names the task. The subclass defines
    `document`; everything else has defaults. Type hints restrict the parameters.

    Attributes:
      kind: measurement of the answers. "retrieval": exact matches by distance, from which effective
        context is estimated; "score": exact matches of the whole context, without a distance;
        "likelihood": nats per token of text; "accuracy": share of the tokens of text with the
        highest probability (`first_token_correct` of answers of one token).
      of_training: whether documents are rows of training, which the data's seed decides.
      needs_training: whether the documents are ids without text, which only training explains.
      num_choices: number of equally likely answers for a model that knows only the format.
    """

    kind: ClassVar[Literal["retrieval", "score", "likelihood", "accuracy"]]
    of_training: ClassVar[bool] = False
    needs_training: ClassVar[bool] = False
    num_choices: ClassVar[float] = math.inf

    def __post_init__(self):
        check(self)

    @property
    def expression(self) -> str:
        """The task as text, without parameters at their defaults."""
        fields = [field.name for field in dataclasses.fields(self)]
        return render(name_of(type(self)), self, fields)

    @property
    def identity(self) -> str:
        """The expression for keys of random numbers: where the user's files lie decides nothing."""
        return re.sub(r"[^(,=\"']*/", "", self.expression)

    def expand(self) -> Sequence["Task"]:
        """Return the tasks that are scored in place of this one."""
        return [self]

    @abc.abstractmethod
    def document(self, context: TaskContext, sample: Sample) -> Document | Sequence[Document]:
        """Return one document, or several rows of one sample: a pure function of the arguments."""

    def least_length(self, context: TaskContext) -> int:
        """Return the shortest length with room for a question."""
        return 2

    def check(self, context: TaskContext) -> None:
        """Raise ValueError if a document does not fit this length."""
        shortest = self.least_length(context)
        if context.length < shortest:
            raise ValueError(
                f"{self.expression} does not fit length={context.length}; the shortest that works "
                f"with this tokenizer is {shortest}"
            )

    def check_files(self) -> None:  # noqa: B027 - most tasks have none
        """Raise ValueError if a file of the task, which no training makes, is missing."""

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """Return the default number of documents; `documents` is the config's number.

        Raises:
          ValueError: as `documents`.
        """
        return documents

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Yield numbers of documents and their sources, such as texts; fewer if data runs out."""
        return ((number, None) for number in numbers)

    def key(self, context: TaskContext, number: int) -> tuple:
        """Return the key of a document's random numbers: everything that decides the document."""
        return context.seed, self.identity, context.split, number, context.length

    def documents(self, context: TaskContext, numbers: range) -> list[Document]:
        """Return the documents of these numbers: a pure function of the arguments.

        A hash of everything that a document depends on is the key of its counter-based generator,
        so documents can be made again in any order.

        Raises:
          ValueError: if documents do not fit this length or tokenizer, or data is missing.
        """
        self.check(context)
        documents = []
        for number, source in self.sources(context, numbers):
            rows = self.rows(context, number, source)
            documents += [dataclasses.replace(row, number=number) for row in rows]
        return documents

    def rows(
        self, context: TaskContext, number: int, source: Any, length: int | None = None
    ) -> Sequence[Document]:
        """Return the rows of one sample.

        Args:
          source: item of `sources`.
          length: length of the rows, with the random numbers of the context's; None: the context's.
        """
        digest = hashlib.blake2b(repr(self.key(context, number)).encode(), digest_size=16)
        bits = np.random.Philox(key=int.from_bytes(digest.digest(), "little"))
        if length is not None:
            context = dataclasses.replace(context, length=length)
        rows = self.document(context, Sample(number, np.random.Generator(bits), source))
        return [rows] if isinstance(rows, Document) else rows

    def chance(self, tokenizer: Tokenizer) -> float:
        """Return the share of exact matches of a model that knows only the format."""
        return 1 / self.num_choices


def draw_over_octaves(random: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    """Draw int64 `[count]` in low ... high, ends included, ascending, evenly over octaves.

    Each of `count` equal parts of the logarithmic range gives one value, so every sample, not only
    the average, is even. A distance d stands for the logarithms from d to d + 1.
    """
    shares = (np.arange(count) + random.random(count)) / count
    return np.minimum(low * ((high + 1) / low) ** shares, high).astype(np.int64)
