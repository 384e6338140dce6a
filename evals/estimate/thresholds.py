"""Effective length by context length: the two rules that others publish, beside L50.

RULER (arXiv 2404.06654) and NoLiMa (arXiv 2502.05167) ask for the longest context whose score,
averaged over where the needle stands, is above a threshold; Men et al. (arXiv 2405.14591) read the
edge of the green area off a heat map. Both are functions of rows of one member setting.

They say less than L50. A model that sees exactly M tokens scores M / L at a context of L > M, so
its effective length by threshold tau is M / tau: 1.17 M at 0.856, 2 M at 0.5. A mean over depths
also hides a dip in the middle.
"""

from typing import NamedTuple

import numpy as np

import evals
from evals import rows as rows_lib
from evals.estimate.bins import bin_number, fine_bin_number, widths
from evals.rows import Rows

# Accuracy of Llama 2 7B at 4k tokens, mean of RULER's 13 tasks: RULER's thresholds for models that
# chat (README) and for base models (paper, appendix F). They mean nothing for other tasks.
RULER_CHAT = 0.856
RULER_BASE = 0.794

# NoLiMa's: this share of the score at the shortest context, which must itself be a score.
RELATIVE = 0.85
_LEARNED = 0.5

# A bin counts as green from half of its answers right, and from this many answers.
_VISIBLE = 0.5
_FEWEST_TRIALS = 4


class EffectiveLength(NamedTuple):
    """The longest context up to which accuracy stays above a threshold.

    Attributes:
      lengths: context lengths evaluated, ascending, tokens.
      accuracy: at each, mean over distances.
      threshold: what accuracy must exceed.
      value: longest length such that accuracy exceeds the threshold there and at every shorter
        one; None if it does not at the shortest.
    """

    lengths: tuple[int, ...]
    accuracy: tuple[float, ...]
    threshold: float
    value: int | None

    def __str__(self):
        if self.value is None:
            return f"< {self.lengths[0]}"
        return f">= {self.value}" if self.value == self.lengths[-1] else f"{self.value}"


def effective_length(rows: Rows, *, threshold: float | None = None) -> EffectiveLength:
    """RULER's effective length, cumulative and strict.

    Cumulative, because accuracy can revive: with a small base a model may pass at 4k, fail at 8k
    and pass at 16k, and whoever relies on 16k meets the dip. (RULER's own text, "maximum length
    exceeding the threshold", leaves both open.)

    Args:
      rows: of one member setting at one or more lengths; of several tasks, accuracy is the mean
        over tasks, as RULER's over its 13. Seeds are pooled.
      threshold: accuracy to exceed, such as `RULER_CHAT`; by default `RELATIVE` of the accuracy
        at the shortest length, which every model passes there: it takes several lengths to say
        something, and a model that gets less than half right at the shortest has none.

    Raises:
      ValueError: if there are no rows, or a task was not evaluated at every length.
    """
    if not len(rows["task"]):
        raise ValueError("no rows to find an effective length in; evaluate first")
    tasks, lengths = np.unique(rows["task"]).tolist(), np.unique(rows["length"]).tolist()
    accuracy = []
    for length in lengths:
        parts = [rows_lib.select(rows, task=task, length=length) for task in tasks]
        missing = [task for task, part in zip(tasks, parts, strict=True) if not len(part["task"])]
        if missing:
            raise ValueError(
                f"effective length needs every task at every length, and {', '.join(missing)} was "
                f"not evaluated at length {length}; evaluate it there or leave that length out"
            )
        accuracy.append(float(np.mean([mean_accuracy(part) for part in parts])))
    exceeded = threshold
    if exceeded is None:
        exceeded = RELATIVE * accuracy[0] if accuracy[0] >= _LEARNED else _LEARNED
    value = None
    for length, reached in zip(lengths, accuracy, strict=True):
        if reached <= exceeded:
            break
        value = length
    return EffectiveLength(tuple(lengths), tuple(accuracy), exceeded, value)


def mean_accuracy(rows: Rows) -> float:
    """Share of exact matches of one task at one length: for retrieval, the mean over distances.

    Questions are not spread evenly over distances (half are log-uniform, and later rounds ask near
    the crossing), so a fine bin of distances counts by its width in tokens, not by its questions.
    """
    if evals.parse(str(rows["task"][0])).kind != "retrieval":
        return float(rows["exact_match"].mean())
    bins, _, accuracy = _bins(fine_bin_number(rows["distance"]), rows)
    shortest, longest = rows["distance"].min(), rows["distance"].max()
    return float(np.average(accuracy, weights=widths(bins, shortest, longest)))


def visual_edge(rows: Rows) -> float:
    """The edge of the green area of a heat map, tokens (Men et al., Figure 7).

    For each context length the longest distance at which at least half of the answers are right,
    wherever they are wrong before it; then the median over lengths. A half-octave of distances is
    one bin of the map, counts from 4 answers and gives the longest distance asked in it. 0 where
    nothing is green; a length that is green to its end gives that end, so lengths that the model
    sees whole pull the median down.

    Args:
      rows: of one retrieval task and member setting at one or more lengths. Seeds are pooled.

    Raises:
      ValueError: if there are no rows.
    """
    if not len(rows["task"]):
        raise ValueError("no rows to find an edge in; evaluate first")
    edges = []
    for length in np.unique(rows["length"]):
        at_length = rows_lib.select(rows, length=length)
        bins, trials, accuracy = _bins(bin_number(at_length["distance"]), at_length)
        green = bins[(accuracy >= _VISIBLE) & (trials >= _FEWEST_TRIALS)]
        in_green = np.isin(bin_number(at_length["distance"]), green)
        edges.append(at_length["distance"][in_green].max(initial=0))
    return float(np.median(edges))


def _bins(bin_of: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row's bin: those that there are, their trials and accuracy, each `[bins]`."""
    bins, index = np.unique(bin_of, return_inverse=True)
    trials = np.bincount(index)
    return bins, trials, np.bincount(index, rows["exact_match"]) / trials
