"""Copying at a lag: a repeated text, whose length is the distance.

    text=random   random ids, repeated to fill the context (Olsson et al., 2022); every id that the
                  past determines is an answer
    text=natural  held-out text, twice at the end of the context; another text fills the context
                  before it: o o o o a b c d a b [c d]
    text=control  the same answers without the first copy, which is replaced by a continuation of
                  the other text: o o o o o o o o a b [c d]

Natural and control are the two halves of the Forgetting Curve (arXiv 2410.04727). Answers are the
ids of the second half of the second copy. Documents of equal number differ only in the first copy,
so a model's gain from copying is a paired difference: `copy_gain`.
"""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

import evals
from data.figures import Curve, Plot, Suggestion
from data.task import Document, Results, Sample, TaskContext
from data.tasks import lagcopy
from data.tokenizer import Tokenizer
from evals import prompts, text
from evals.estimate.bins import BIN_STARTS
from utils.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(lagcopy.Lagcopy):
    """Copying at a lag; see the module.

    Attributes:
      text: "random", "natural" or "control".
      lag: tokens of the repeated text, one more than the distance; None: drawn for each document
        up to the length, half of the lags log-uniformly and half uniformly.
    """

    text: Literal["random", "natural", "control"] = "random"
    lag: Annotated[int, Bounds(at_least=2)] | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.text != "random" and self.answers != lagcopy.Lagcopy.answers:
            raise ValueError(
                "lagcopy(answers=...) needs text=random: other texts have fixed answers"
            )

    @property
    def kind(self) -> Literal["retrieval", "accuracy"]:
        """Retrieval for random ids; natural text can be guessed, so it is compared with control."""
        return "retrieval" if self.text == "random" else "accuracy"

    @property
    def plot(self) -> Plot | None:
        """Figure of natural text against its control."""
        return None if self.text == "random" else _PLOT

    def least_length(self, context: TaskContext) -> int:
        """Return two copies, for random ids plus the id that is the answer."""
        if self.text != "random":
            return 2 * (self.lag or 2)
        return self.lag + 2 if self.lag else super().least_length(context)

    def key(self, context: TaskContext, number: int) -> tuple:
        """Return the key of a document; natural and control share theirs."""
        if self.text == "random" and self.lag is None:
            return super().key(context, number)
        # Natural and control draw equal lags.
        drawn = dataclasses.replace(self, text="natural") if self.text == "control" else self
        return prompts.key(drawn, context, number)

    def sources(self, context: TaskContext, numbers: range) -> Iterable[tuple[int, Any]]:
        """Yield pairs of texts; the second is repeated, the first fills the context before it."""
        if self.text == "random":
            return super().sources(context, numbers)
        pairs = range(2 * numbers.start, 2 * numbers.stop)
        room = context.length - (self.lag or 2)
        crops = text.crops(context, pairs, task=self.expression, length=room)
        return (
            (number // 2, (other.tokens, crop.tokens))
            for (number, other), (_, crop) in zip(crops, crops, strict=False)
        )

    def document(self, context: TaskContext, sample: Sample) -> Document:
        """Make the other text, the first copy unless this is the control, and the second."""
        if self.text == "random":
            return super().document(context, sample)
        other, repeated = sample.source
        length, lag = context.length, self._lag(context, sample)
        copy = repeated[1 : lag + 1]
        before = other[1 : length - lag + 1].copy()
        if self.text == "natural":
            before[-lag:] = copy
        tokens = np.concatenate([[context.tokenizer.bos_id], before, copy])
        return lagcopy.copied(tokens, np.arange(length + 1 - (lag + 1) // 2, length + 1), lag)

    def _lag(self, context: TaskContext, sample: Sample) -> int:
        if self.lag or self.text == "random":
            return self.lag or super()._lag(context, sample)
        wanted = context.distances and (context.distances[0] + 1, context.distances[1] + 1)
        return prompts.distance(sample.random, 2, context.length // 2, wanted)

    def chance(self, tokenizer: Tokenizer) -> float:
        """Return the accuracy of a guess, 0 for natural text, whose baseline is the control."""
        return super().chance(tokenizer) if self.text == "random" else 0.0

    def curves(self, trained: Results, results: Results) -> list[Curve]:
        """Return the gain in nats and in accuracy from the first copy, by lag."""
        gain = copy_gain(trained)
        if not len(gain.lag):
            return []
        return [
            Curve.from_means(gain.lag, gain.nats, gain.nats_error),
            Curve.from_means(gain.lag, gain.accuracy, gain.accuracy_error),
        ]

    @classmethod
    def suggestion(cls, length: int) -> Suggestion:
        """Return both halves of the Forgetting Curve."""
        both = "lagcopy(text=natural),lagcopy(text=control)"
        what = "The gain of a text from an earlier copy, by lag."
        return Suggestion(what, "copy_gain", [["--tasks", both, "--lengths", length]])


_PLOT = Plot(
    name="copy_gain",
    alternative="Gain in nats and in accuracy from an earlier copy, against its lag.",
    caption="Repeated held-out text, compared with the same text after another text (Forgetting "
    "Curve, arXiv 2410.04727), by half octaves of lag, with 95% intervals over documents. The gain "
    "excludes what the model guesses or knows. Above: nats; below: share of right tokens.",
    xlabel="lag: tokens from the first copy to the second (log scale)",
    ylabels=(
        "nats per token less than\nwithout the first copy",
        "share of right tokens\nabove that without it",
    ),
    levels="no gain",
    together=True,
)


class CopyGain(NamedTuple):
    """Gain of the second copy from the first, one entry for each half-octave of lag.

    Attributes:
      lag: float, geometric mean of the lags, tokens.
      nats: float, nats per token without the first copy minus those with it.
      accuracy: float, share of right tokens with the first copy minus that without it.
      nats_error, accuracy_error: float, standard errors over documents; NaN for one document.
      documents: float, number of documents, over all runs in the rows.
    """

    lag: np.ndarray
    nats: np.ndarray
    accuracy: np.ndarray
    nats_error: np.ndarray
    accuracy_error: np.ndarray
    documents: np.ndarray


_PAIRED_BY = ("run", "seed", "step", "rotary", "length", "document", "query")


def copy_gain(rows: Results) -> CopyGain:
    """Return the gain from copying by lag: rows of `text=natural` against `text=control`.

    All answers of a document have one lag, so their mean is the document's gain; the gain of a bin
    is the mean over its documents. Answers without a counterpart are left out.
    """
    natural, control = _by_answer(rows, "natural"), _by_answer(rows, "control")
    pairs: dict[tuple, list[tuple[int, int]]] = {}  # row indices, by document
    for (*document, query), index in natural.items():
        if (*document, query) in control:
            pairs.setdefault(tuple(document), []).append((index, control[*document, query]))
    right = rows["exact_match"].astype(float)
    lags, gains = [], []
    for first, second in (np.array(indices).T for indices in pairs.values()):
        lags.append(rows["distance"][first[0]] + 1)
        nats = np.mean(rows["nll"][second] - rows["nll"][first])
        gains.append((nats, np.mean(right[first] - right[second])))
    lags, gains = np.array(lags), np.array(gains).reshape(-1, 2)

    bins = np.searchsorted(BIN_STARTS, lags, side="right")
    columns = []
    for number in np.unique(bins).tolist():
        part = gains[bins == number]
        error = part.std(axis=0, ddof=1) / len(part) ** 0.5 if len(part) > 1 else [np.nan] * 2
        lag = np.exp(np.log(lags[bins == number]).mean())
        columns.append((lag, *part.mean(axis=0), *error, len(part)))
    return CopyGain(*np.array(columns).reshape(-1, len(CopyGain._fields)).T)


def _by_answer(rows: Results, name: str) -> dict[tuple, int]:
    """Index rows of `lagcopy` with this text by the columns that pair natural and control."""
    tasks = map(evals.parse, rows["task"].tolist())
    common = zip(tasks, *(rows[column].tolist() for column in _PAIRED_BY), strict=True)
    return {
        (task.lag, *key): index
        for index, (task, *key) in enumerate(common)
        if isinstance(task, Lagcopy) and task.text == name
    }
