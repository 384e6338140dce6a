"""Two published measures of effective length, for comparison with L50.

NoLiMa (arXiv 2502.05167) reports the longest context whose score, the mean over needle depths,
exceeds a threshold. Men et al. (arXiv 2405.14591) report the edge of the green area of a heat map.
Both are functions of rows of one member setting.

Both are less precise than L50. A model that retrieves over exactly M tokens scores M / L at a
context of L > M, so its effective length by threshold tau is M / tau: 1.18 M at 0.85. A mean over
depths also hides a dip in the middle. RULER's thresholds (Llama 2 7B's mean over its 13 tasks at 4k
tokens) do not apply to a single task.
"""

from typing import NamedTuple

import numpy as np

from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate import summaries
from ropewalk.evals.estimate.bins import bin_number
from ropewalk.evals.rows import Rows

# NoLiMa's threshold: this share of the score at the shortest context, at least _LEARNED there.
RELATIVE = 0.85
_LEARNED = 0.5

# A bin is green if at least half of its answers are right, of at least this many answers.
_VISIBLE = 0.5
_MIN_TRIALS = 4


class EffectiveLength(NamedTuple):
    """The longest context up to which accuracy stays above a threshold.

    Attributes:
      lengths: context lengths evaluated, ascending, tokens.
      accuracy: accuracy at each length, mean over distances.
      value: longest length such that accuracy exceeds the threshold there and at all shorter
        lengths; None if accuracy at the shortest length does not.
    """

    lengths: tuple[int, ...]
    accuracy: tuple[float, ...]
    value: int | None

    def __str__(self):
        if self.value is None:
            return f"< {self.lengths[0]}"
        return f">= {self.value}" if self.value == self.lengths[-1] else f"{self.value}"


def effective_length(rows: Rows) -> EffectiveLength:
    """Return NoLiMa's effective length, cumulative and strict.

    The threshold is `RELATIVE` times the accuracy at the shortest length, or `_LEARNED` if that
    accuracy is lower. It is useful only with several lengths, because every learned model passes at
    the shortest. It is cumulative because accuracy can recover: with a small base a model may pass
    at 4k, fail at 8k and pass at 16k.

    Args:
      rows: rows of one task and member setting at one or more lengths. Seeds are pooled.
    """
    lengths = np.unique(rows["length"]).tolist()
    accuracy = [summaries.mean_accuracy(rows_lib.select(rows, length=length)) for length in lengths]
    limit = RELATIVE * accuracy[0] if accuracy[0] >= _LEARNED else _LEARNED
    value = None
    for length, score in zip(lengths, accuracy, strict=True):
        if score <= limit:
            break
        value = length
    return EffectiveLength(tuple(lengths), tuple(accuracy), value)


def visual_edge(rows: Rows) -> float:
    """Return the edge of the green area of a heat map, tokens (Men et al., Figure 7).

    The edge is the median over context lengths of the longest distance in a green bin, whatever
    the accuracy at shorter distances. A bin is half an octave of distances; it needs 4 answers. The
    distance is 0 without a green bin. A length that is green at all distances gives its longest
    distance, so short lengths lower the median.

    Args:
      rows: rows of one retrieval task and member setting at one or more lengths. Seeds are pooled.
    """
    edges = []
    for length in np.unique(rows["length"]):
        at_length = rows_lib.select(rows, length=length)
        distance = at_length["distance"]
        _, index, trials = np.unique(bin_number(distance), return_inverse=True, return_counts=True)
        accuracy = np.bincount(index, at_length["exact_match"]) / trials
        is_green = (accuracy >= _VISIBLE) & (trials >= _MIN_TRIALS)
        edges.append(distance[is_green[index]].max(initial=0))
    return float(np.median(edges))
