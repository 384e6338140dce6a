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
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

import evals
from data.figures import Curve, Plot, Suggestion
from data.task import Asked, Document, Draw, Results
from data.tasks import lagcopy
from data.tokenizer import Tokenizer
from evals import prompts, text
from evals.estimate.bins import BIN_STARTS
from settings.checks import Bounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lagcopy(lagcopy.Lagcopy):
    """See the module.

    Attributes:
      text: "random", "natural" or "control".
      lag: tokens of the repeated text, one more than the distance; None: drawn for each document,
        half of them log-uniformly, half uniformly, as far as the length allows.
    """

    text: Literal["random", "natural", "control"] = "random"
    lag: Annotated[int, Bounds(at_least=2)] | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.text != "random" and self.answers != lagcopy.Lagcopy.answers:
            raise ValueError("lagcopy(answers=...) is of random ids: half of other texts is asked")

    @property
    def kind(self) -> Literal["retrieval", "accuracy"]:
        """Natural text can be guessed: its accuracy means something beside the control's only."""
        return "retrieval" if self.text == "random" else "accuracy"

    @property
    def plot(self) -> Plot | None:
        """Natural text against its control."""
        return None if self.text == "random" else _PLOT

    def least_length(self, asked: Asked) -> int:
        """Two copies; of random ids one more id, which is asked."""
        if self.text != "random":
            return 2 * (self.lag or 2)
        return self.lag + 2 if self.lag else super().least_length(asked)

    def key(self, asked: Asked, number: int) -> tuple:
        """See `Task.key`."""
        if self.text == "random" and self.lag is None:
            return super().key(asked, number)
        # Natural and control draw the same lag.
        drawn = dataclasses.replace(self, text="natural") if self.text == "control" else self
        return prompts.key(drawn, asked, number)

    def sources(self, asked: Asked, numbers: range) -> Iterable[tuple[int, Any]]:
        """See `Task.sources`: two texts, one to be said before the other, which is said twice."""
        if self.text == "random":
            return super().sources(asked, numbers)
        pairs = range(2 * numbers.start, 2 * numbers.stop)
        room = asked.length - (self.lag or 2)
        crops = text.crops(asked, pairs, task=self.expression, length=room)
        return (
            (number // 2, (other.tokens, said.tokens))
            for (number, other), (_, said) in zip(crops, crops, strict=False)
        )

    def document(self, asked: Asked, draw: Draw) -> Document:
        """See the module."""
        if self.text == "random":
            return super().document(asked, draw)
        other, repeated = draw.source
        length, lag = asked.length, self._lag(asked, draw)
        said = repeated[1 : lag + 1]
        before = other[1 : length - lag + 1].copy()
        if self.text == "natural":
            before[-lag:] = said
        tokens = np.concatenate([[asked.tokenizer.bos_id], before, said])
        return lagcopy.copied(tokens, np.arange(length + 1 - (lag + 1) // 2, length + 1), lag)

    def _lag(self, asked: Asked, draw: Draw) -> int:
        if self.lag or self.text == "random":
            return self.lag or super()._lag(asked, draw)
        wanted = asked.distances and (asked.distances[0] + 1, asked.distances[1] + 1)
        return prompts.distance(draw.random, 2, asked.length // 2, wanted)

    def chance(self, tokenizer: Tokenizer) -> float:
        """See `Task.chance`. Of natural text the control is the measure, not a guess."""
        return super().chance(tokenizer) if self.text == "random" else 0.0

    def curves(self, own: Results, every: Results) -> list[Curve]:
        """Nats and share of right tokens gained by the first saying, by lag."""
        gain = copy_gain(own)
        if not len(gain.lag):
            return []
        return [
            Curve.of(gain.lag, gain.nats, gain.nats_error),
            Curve.of(gain.lag, gain.accuracy, gain.accuracy_error),
        ]

    @classmethod
    def suggestion(cls, length: int) -> Suggestion:
        """See `Task.suggestion`."""
        both = "lagcopy(text=natural),lagcopy(text=control)"
        what = "What a text is worth to its own repetition, by lag."
        return Suggestion(what, "copy_gain", [["--tasks", both, "--lengths", length]])


_PLOT = Plot(
    name="copy_gain",
    alternative="Nats and share of right tokens gained by a first saying, against its lag.",
    caption="Held-out text said twice, against the same text said once with another before it "
    "(Forgetting Curve, arXiv 2410.04727), by half octaves of lag, with 95% intervals over "
    "documents: what is gained is copied and neither guessed nor known. Above: nats; below: most "
    "likely tokens.",
    xlabel="lag: tokens from the first saying to the second (log scale)",
    ylabels=(
        "nats per token less than\nwithout the first saying",
        "share of right tokens\nabove that without it",
    ),
    levels="nothing gained",
    together=True,
)


class CopyGain(NamedTuple):
    """What a first saying is worth to the second, one entry for each half-octave of lag.

    Attributes:
      lag: float, geometric mean of the lags, tokens.
      nats: float, nats per token less with the first saying than without it.
      accuracy: float, the same for the share of tokens that are the most likely ones.
      nats_error, accuracy_error: float, standard errors over documents; NaN if there is one.
      documents: float, documents (of all runs in the rows).
    """

    lag: np.ndarray
    nats: np.ndarray
    accuracy: np.ndarray
    nats_error: np.ndarray
    accuracy_error: np.ndarray
    documents: np.ndarray


_PAIRED_BY = ("run", "seed", "step", "rotary", "length", "document", "query")


def copy_gain(rows: Results) -> CopyGain:
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
    for first, second in (np.array(indices).T for indices in pairs.values()):
        lags.append(rows["distance"][first[0]] + 1)
        nats = np.mean(rows["nll"][second] - rows["nll"][first])
        gains.append((nats, np.mean(right[first] - right[second])))
    lags, gains = np.array(lags), np.array(gains).reshape(-1, 2)

    bins = np.searchsorted(BIN_STARTS, lags, side="right")
    columns = []
    for number in np.unique(bins).tolist():
        bin_gains = gains[bins == number]
        error = (
            bin_gains.std(axis=0, ddof=1) / len(bin_gains) ** 0.5
            if len(bin_gains) > 1
            else [np.nan] * 2
        )
        lag = np.exp(np.log(lags[bins == number]).mean())
        columns.append((lag, *bin_gains.mean(axis=0), *error, len(bin_gains)))
    return CopyGain(*np.array(columns).reshape(-1, len(CopyGain._fields)).T)


def _by_answer(rows: Results, name: str) -> dict[tuple, int]:
    """Rows of `lagcopy` with this text: number of the row by what both texts have in common."""
    tasks = map(evals.parse, rows["task"].tolist())
    common = zip(tasks, *(rows[column].tolist() for column in _PAIRED_BY), strict=True)
    return {
        (task.lag, *key): index
        for index, (task, *key) in enumerate(common)
        if isinstance(task, Lagcopy) and task.text == name
    }
