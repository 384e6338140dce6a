"""Copying at a lag: a text is said again, and the distance is the text's length.

    text=random   random ids again and again to fill the context (Olsson et al., 2022); every id
                  that the past determines is an answer
    text=natural  held-out text at the end of the context, said a second time; before it, another
                  text fills the context: o o o o a b c d a b [c d]
    text=control  the same answers without the first saying, which the other text's continuation
                  stands in for: o o o o o o o o a b [c d]

Natural and control are the two halves of the Forgetting Curve (arXiv 2410.04727): answers are the
second half of the second saying, id by id, and equal numbers hold the same ids except for the first
saying, so that a model's gain from copying is a paired difference: `copy_gain`.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import numpy as np

import evals
from data import retrieval
from data.tokenizer import Tokenizer
from evals import prompts, text
from evals.estimate.bins import BIN_STARTS
from evals.rows import Rows
from evals.task import Document, Task
from experiment.config import ExperimentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(Task):
    """See the module.

    Attributes:
      text: "random", "natural" or "control".
      lag: tokens of the repeated text, one more than the distance; None: drawn for each document,
        half of them log-uniformly, half uniformly, as far as the length allows.
    """

    text: Literal["random", "natural", "control"] = "random"
    lag: int | None = None

    @property
    def kind(self) -> Literal["retrieval", "accuracy"]:
        """Natural text can be guessed: its accuracy means something beside the control's only."""
        return "retrieval" if self.text == "random" else "accuracy"

    def __post_init__(self):
        if self.text not in ("random", "natural", "control"):
            raise ValueError(
                f"lagcopy(text=...) must be random, natural or control, got {self.text!r}"
            )
        if self.lag is not None and self.lag < 2:
            raise ValueError(f"lagcopy needs a lag of at least 2, got lag={self.lag}")

    def documents(
        self,
        config: ExperimentConfig,
        tokenizer: Tokenizer,
        length: int,
        numbers: range,
        distances: tuple[int, int] | None = None,
    ) -> list[Document]:
        """See `Task.documents`."""
        seed = config.evals.seed
        if self.text != "random":
            return self._natural(config, tokenizer, length, numbers, distances)
        if self.lag is None:
            make = functools.partial(retrieval.make, "lagcopy", tokenizer, length, seed=seed)
            return [
                Document.of(make(split="validation", index=number, distances=distances), number)
                for number in numbers
            ]
        # Two copies and one more id, which is asked.
        prompts.check_length(f"lagcopy(lag={self.lag})", length, self.lag + 2)
        return [
            _random(
                tokenizer, length, self.lag, number, prompts.generator(self, seed, length, number)
            )
            for number in numbers
        ]

    def _natural(self, config, tokenizer, length, numbers, distances) -> list[Document]:
        task = evals.expression(self)
        prompts.check_length(task, length, 2 * (self.lag or 2))
        # Two documents of the store for each number: one is repeated, the other stands before it.
        pairs = range(2 * numbers.start, 2 * numbers.stop)
        room = length - (self.lag or 2)
        crops = text.crops(config, tokenizer, room, pairs, task=task)
        # Natural and control draw the same lag.
        drawn = dataclasses.replace(self, text="natural")
        documents = []
        for (index, other, _), (_, repeated, _) in zip(crops, crops, strict=False):
            number = index // 2
            random = prompts.generator(drawn, config.evals.seed, length, number)
            wanted = (distances[0] + 1, distances[1] + 1) if distances else None
            lag = self.lag or prompts.distance(random, 2, length // 2, wanted)
            said = repeated[1 : lag + 1]
            before = other[1 : length - lag + 1].copy()
            if self.text == "natural":
                before[-lag:] = said
            tokens = np.concatenate([[tokenizer.bos_id], before, said]).astype(np.int32)
            start = np.arange(length + 1 - (lag + 1) // 2, length + 1)
            documents.append(_answered(tokens, start, lag, number))
        return documents

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`. Of natural text the control is the measure, not a guess."""
        return retrieval.chance("lagcopy", tokenizer) if self.text == "random" else 0.0


def _random(tokenizer: Tokenizer, length: int, lag: int, number: int, random) -> Document:
    """As `data.retrieval` makes it, at a given lag."""
    fillers = tokenizer.fillers
    blocks = [random.permutation(len(fillers)) for _ in range(0, lag, len(fillers))]
    copies = np.resize(fillers[np.concatenate(blocks)[:lag]], length)
    tokens = np.append(tokenizer.bos_id, copies).astype(np.int32)
    return _answered(tokens, np.arange(lag + 2, length + 1), lag, number)


def _answered(tokens: np.ndarray, start: np.ndarray, lag: int, number: int) -> Document:
    answers = np.stack([start, np.ones_like(start), np.full_like(start, lag - 1)], axis=1)
    return Document(tokens=tokens, answers=answers.astype(np.int32), number=number)


class CopyGain(NamedTuple):
    """What a first saying is worth to the second, one entry for each half-octave of lag.

    Attributes:
      lag: float, geometric mean of the lags, tokens.
      nats: float, nats a token less with the first saying than without it.
      accuracy: float, the same for the share of tokens that are the most likely ones.
      nats_error, accuracy_error: float, standard errors over documents; NaN if there is one.
      documents: int, documents (of all runs in the rows).
    """

    lag: np.ndarray
    nats: np.ndarray
    accuracy: np.ndarray
    nats_error: np.ndarray
    accuracy_error: np.ndarray
    documents: np.ndarray


_PAIRED_BY = ("run", "seed", "step", "rotary", "length", "document", "query")


def copy_gain(rows: Rows) -> CopyGain:
    """Gain from copying, by lag: rows of `text=natural` against those of `text=control`.

    A document's answers have one lag, so their mean is the document's gain; a bin's is the mean of
    its documents'. Answers of only one of the two are left out.
    """
    natural, control = _by_answer(rows, "natural"), _by_answer(rows, "control")
    pairs: dict[tuple, list[tuple[int, int]]] = {}  # of each document
    for (*document, query), index in natural.items():
        if (*document, query) in control:
            pairs.setdefault(tuple(document), []).append((index, control[*document, query]))
    right = rows["exact_match"].astype(float)
    lags, gains = [], []
    for first, second in (np.array(each).T for each in pairs.values()):
        lags.append(rows["distance"][first[0]] + 1)
        nats = np.mean(rows["nll"][second] - rows["nll"][first])
        gains.append((nats, np.mean(right[first] - right[second])))
    lags, gains = np.array(lags), np.array(gains).reshape(-1, 2)

    bins = np.searchsorted(BIN_STARTS, lags, side="right")
    columns = []
    for number in np.unique(bins).tolist():
        mine = gains[bins == number]
        error = mine.std(axis=0, ddof=1) / len(mine) ** 0.5 if len(mine) > 1 else [np.nan] * 2
        lag = np.exp(np.log(lags[bins == number]).mean())
        columns.append((lag, *mine.mean(axis=0), *error, len(mine)))
    lag, nats, accuracy, nats_error, accuracy_error, documents = np.array(columns).reshape(-1, 6).T
    return CopyGain(lag, nats, accuracy, nats_error, accuracy_error, documents.astype(int))


def _by_answer(rows: Rows, name: str) -> dict[tuple, int]:
    """Rows of `lagcopy` with this text: number of the row by what both texts have in common."""
    tasks = map(evals.parse, rows["task"].tolist())
    common = zip(tasks, *(rows[column].tolist() for column in _PAIRED_BY), strict=True)
    return {
        (task.lag, *key): index
        for index, (task, *key) in enumerate(common)
        if isinstance(task, Lagcopy) and task.text == name
    }
