"""What every task is: documents with questions in them, at known distances, and what answers say.

A task is one file with one frozen dataclass. `data.tasks` holds those that can be trained on too,
`evals.tasks` those that are only asked. This module needs numpy alone, because grain's worker
processes make training documents from tasks.
"""

import abc
import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from data.config import DataConfig
from data.figures import Curve, Grid, Plot, Shares, Suggestion
from data.tokenizer import Tokenizer
from settings.checks import check
from settings.expressions import render
from settings.folders import name_of

Results = dict[str, np.ndarray]  # result rows as columns, of the schema of `evals.rows`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """Ids with questions in them. The answers are in place: teacher forcing.

    Attributes:
      tokens: int32 `[n]`, n <= length + 1, BOS at 0.
      answers: int32 `[Q, 3]`, one row an answer: index of its first id, number of ids, distance.
        The distance, in tokens, is from the id that asked for to the position whose logits answer:
        tokens[start - 1] is that position, tokens[start - 1 - distance] the first id of the same
        content said earlier. Tasks without a distance say what they put there.
      number: documents of one number are one draw for the statistics, however many rows: paired
        contexts of one text, depths of one haystack. Equal numbers are equal for all runs.
      first_query: number of the first answer within the document.
      num_bytes, num_words: int32 `[Q]`, of the answers' text, where the task measures text.
      segment_ids: int32 `[n - 1]`, as in a packed row of training; None: one document.
    """

    tokens: np.ndarray
    answers: np.ndarray
    number: int = 0
    first_query: int = 0
    num_bytes: np.ndarray | None = None
    num_words: np.ndarray | None = None
    segment_ids: np.ndarray | None = None

    @classmethod
    def from_lists(cls, tokens: Any, answers: Any, **fields: Any) -> "Document":
        """From lists or arrays of any integers."""
        tokens, answers = (np.asarray(each, np.int32) for each in (tokens, answers))
        return cls(tokens=tokens, answers=answers, **fields)

    def loss_mask(self) -> np.ndarray:
        """float32 `[n - 1]`: 1 at the positions whose logits give an answer's ids."""
        mask = np.zeros(len(self.tokens) - 1, np.float32)
        start, count = self.answers[:, 0], self.answers[:, 1]
        for i in range(count.max(initial=0)):
            mask[start[count > i] - 1 + i] = 1
        return mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskContext:
    """What a task is to make documents for.

    Attributes:
      data: where text comes from, and the trained length.
      tokenizer: of the run.
      length: tokens a model sees; documents have up to length + 1 ids.
      seed: decides random numbers.
      split: "train", or anything else for documents that training never holds.
      distances: ask mostly at these, first and last, in tokens, as far as there is room for them;
        tasks that cannot choose distances do not look at it.
      held_out: the store of held-out documents that the run keeps; None, or nothing there: they are
        found as training finds its text.
    """

    data: DataConfig
    tokenizer: Tokenizer
    length: int
    seed: int
    split: str = "validation"
    distances: tuple[int, int] | None = None
    held_out: Path | None = None


class Sample(NamedTuple):
    """What makes one document different from the others.

    Attributes:
      number: of the document.
      random: its own generator.
      source: what it is made from, as `Task.sources` gives it.
    """

    number: int
    random: np.random.Generator
    source: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """One question to a checkpoint: its parameters are fields, written `name(parameter=value)`.

    A new task is one new file with one subclass; the file's name is the task's. It makes a
    `document`; the rest has defaults. Its parameters are held to their type hints.

    Attributes:
      kind: what its answers measure. "retrieval": exact matches by distance, from which effective
        context is estimated; "score": exact matches of the whole context, without a distance;
        "likelihood": nats per token of text; "accuracy": share of the tokens of text that are the
        most likely ones (`first_token_correct` of answers of one token).
      order: its place among tasks on a page; the first retrieval task leads it.
      compared: whether different lengths and variants are told apart by the general figures and
        tables; a task whose documents differ by length has figures of its own instead.
      plot: a figure of curves of its own, which `curves` fills.
      shares: a table of its own, which `share_columns` fills.
      of_training: whether its documents are rows of training, which the data's seed decides.
      since_version_2: parameters that documents of version 1 do not have.
      num_choices: as many answers are equally likely to a model that knows the format and nothing
        of the past.
    """

    kind: ClassVar[Literal["retrieval", "score", "likelihood", "accuracy"]]
    order: ClassVar[int] = 9
    compared: ClassVar[bool] = True
    plot: ClassVar[Plot | None] = None
    shares: ClassVar[Shares | None] = None
    of_training: ClassVar[bool] = False
    since_version_2: ClassVar[tuple[str, ...]] = ()
    num_choices: ClassVar[float] = math.inf

    def __post_init__(self):
        check(self)

    @property
    def expression(self) -> str:
        """The task as text, defaults left out."""
        fields = [field.name for field in dataclasses.fields(self)]
        return render(name_of(type(self)), self, fields)

    # What is asked.

    @abc.abstractmethod
    def document(self, context: TaskContext, sample: Sample) -> Document | Sequence[Document]:
        """One document, or several rows that are one draw: a pure function of the arguments."""

    def least_length(self, context: TaskContext) -> int:
        """The shortest length at which it can ask."""
        return 2

    def check(self, context: TaskContext) -> None:
        """Raises ValueError if it cannot ask at this length, with the length that would do."""
        if context.data.documents == 1 and (new := render("", self, self.since_version_2)):
            raise ValueError(
                f"{self.expression} needs data.documents=2; documents of version 1 have no {new}"
            )
        if context.length < (least := self.least_length(context)):
            raise ValueError(
                f"{self.expression} does not fit length={context.length}; the shortest that works "
                f"with this tokenizer is {least}"
            )

    def num_documents(self, context: TaskContext, documents: int) -> int:
        """How many to ask where nobody said it, and the config says `documents`.

        Raises:
          ValueError: as `documents`.
        """
        return documents

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Each document's number and what it is made from, such as a text.

        Fewer come back where the data has no more.
        """
        return ((number, None) for number in numbers)

    def key(self, context: TaskContext, number: int) -> tuple:
        """What decides the random numbers of a document: all that it is made of."""
        key = context.seed, self.expression, context.split, number, context.length
        return key + tuple(map(int, context.distances or ()))

    def documents(self, context: TaskContext, numbers: range) -> list[Document]:
        """The documents of these numbers: a pure function of the arguments.

        Random numbers come from a counter-based generator keyed by a hash of all that a document
        depends on, so any document can be made again, in any order.

        Raises:
          ValueError: if it cannot ask at this length, with this tokenizer or without this data; it
            says what would help (the shortest length that works, the missing file).
        """
        self.check(context)
        found = []
        for number, source in self.sources(context, numbers):
            digest = hashlib.blake2b(repr(self.key(context, number)).encode(), digest_size=16)
            bits = np.random.Philox(key=int.from_bytes(digest.digest(), "little"))
            made = self.document(context, Sample(number, np.random.Generator(bits), source))
            rows = [made] if isinstance(made, Document) else made
            found += [dataclasses.replace(row, number=number) for row in rows]
        return found

    def chance(self, tokenizer: Tokenizer) -> float:
        """Exact matches of a model that knows the format and nothing of the past."""
        return 1 / self.num_choices

    def num_others(self, data: DataConfig, length: int) -> int | None:
        """Keys of a document of this length that a question's could be mistaken for.

        None where that is not known: such a task has no forecast of effective context.
        """
        return None

    # What the answers say.

    def columns(self, results: Results, trained: Results | None) -> dict[str, float]:
        """Numbers of its own, by name: columns of `results.csv` and of tables.

        Args:
          results: of one length and one variant evaluated with.
          trained: the same under the variant trained with, where that was evaluated.
        """
        return {}

    def curves(self, own: Results, every: Results) -> Sequence[Curve]:
        """One member's curves at one length, one for each of `plot.ylabels`; none: nothing to draw.

        Args:
          own: under the variant trained with.
          every: under all variants.
        """
        return ()

    def grid(self, results: Results) -> Grid | None:
        """Accuracy at one length by place in the context; None: by distance."""
        return None

    def share_columns(self, results: Results, length: int) -> dict[str, dict[str, Any]]:
        """What fills the table `shares` at one length, from all results of the class.

        Returns:
          By variant (as in the column `rotary`) and head: a mean with its standard error.
        """
        return {}

    @classmethod
    def suggestion(cls, length: int) -> Suggestion | None:
        """What to measure on models that were trained at `length`, or can be asked only there."""
        return None


def possible(low: int, high: int, wanted: tuple[int, int] | None) -> tuple[int, int]:
    """The part of the wanted distances that lies in low ... high, all ends included.

    Raises:
      ValueError: if there is none.
    """
    if wanted is None:
        return low, high
    if wanted[1] < low or wanted[0] > high:
        raise ValueError(
            f"no question can be asked at distances {wanted[0]} to {wanted[1]}; at this length "
            f"there are {low} to {high}"
        )
    return max(low, wanted[0]), min(high, wanted[1])


def evenly(random: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    """int64 `[count]` in low ... high, ends included, ascending: evenly over octaves.

    One from each of `count` equal stretches of the logarithm, so that an octave holds its share
    not on average only. A distance d stands for the logarithms from d to d + 1.
    """
    shares = (np.arange(count) + random.random(count)) / count
    return np.minimum(low * ((high + 1) / low) ** shares, high).astype(np.int64)


def distances(random: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    """int64 `[count]` in low ... high, ends included, in no order.

    Half of them log-uniform, half uniform, so that near and far are both seen; the log-uniform
    half alone would send 1 in 10 to the far half.
    """
    u, uniform = random.random((2, count))
    far = low + u * (high + 1 - low)
    near = np.exp(np.log(low) + u * np.log((high + 1) / low))
    return np.where(uniform < 0.5, far, near).astype(np.int64)
