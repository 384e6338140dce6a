"""Sequential sampling: more documents where they narrow an interval, and none where they do not.

A first round asks at all distances. Members whose effective context is still vague then get
documents that ask within an octave of their crossing; what is far from it says nothing about
where accuracy falls. `effective_context.estimate` reads the rows of all rounds together: its
accuracies are those at the distances asked, and the ceiling keeps the questions of the first round.
"""

import math
from typing import NamedTuple

import numpy as np

from evals import rows as rows_lib
from evals.estimate.bins import BINS_PER_OCTAVE, FINE_PER_BIN
from evals.estimate.effective_context import NOT_LEARNED, Estimate, estimate
from evals.rows import Rows

# What makes rows one run's: seeds are apart, because more documents do not make them agree.
_MEMBER = ("run", "seed", "trained_length", "step", "rotary")

# Bounds on what is asked of one round, as shares of the documents so far: what a first, vague
# crossing asks for may lie beside it, and a handful of documents is not worth a round.
_MOST, _LEAST = 1.0, 0.125

# No interval is narrower: a fall may lie anywhere within a fine bin.
_NARROWEST = 1 / (BINS_PER_OCTAVE * FINE_PER_BIN)


class DistanceRange(NamedTuple):
    """Documents wanted, with questions at some distances.

    Attributes:
      low, high: first and last distance, tokens.
      num_documents: how many, all with new numbers.
    """

    low: int
    high: int
    num_documents: int


def next_round(rows: Rows, *, octaves: float, max_documents: int) -> list[DistanceRange]:
    """What to ask next; nothing when every interval is narrow or the documents are used up.

    A member asks when the 95% interval of its L50, as far as it lies within the distances
    measured, is wider than `octaves`. So one that never fell before the longest distance asks for
    nothing if that is sure, and for the last octave if its interval reaches below; one that did
    not learn asks for nothing: training decides that, not more documents. The same documents go
    to all members, so ranges that overlap become one, with the documents of whoever needs most.

    Args:
      rows: of one task and length, all members and rounds so far, in columns of `evals.rows`.
      octaves: width of interval wanted, log2 of its ends' ratio.
      max_documents: of all rounds together.

    Returns:
      Ranges by distance, which do not overlap.

    Raises:
      ValueError: if `octaves` is not above an eighth, or as `effective_context.estimate` does.
    """
    if octaves <= _NARROWEST:
        raise ValueError(
            f"octaves must be above {_NARROWEST}, the width of a bin, got {octaves}; "
            "a quarter octave is 0.25"
        )
    num_documents = len(np.unique(rows["document"]))
    left = max_documents - num_documents
    if left <= 0:
        return []
    members = [_wanted(member, octaves) for member in _members(rows)]
    ranges = _merged([each for each in members if each is not None])
    total = sum(each.num_documents for each in ranges)
    if total <= left:
        return ranges
    shares = [each.num_documents * left // total for each in ranges]
    shared = zip(ranges, shares, strict=True)
    return [each._replace(num_documents=share) for each, share in shared if share]


def _members(rows: Rows) -> list[Rows]:
    keys = list(zip(*(rows[name].tolist() for name in _MEMBER), strict=True))
    names = [dict(zip(_MEMBER, key, strict=True)) for key in sorted(set(keys))]
    return [rows_lib.select(rows, **name) for name in names]


def _wanted(rows: Rows, octaves: float) -> DistanceRange | None:
    """What one member asks for."""
    found: Estimate = estimate(rows)
    if found.verdict == NOT_LEARNED or found.octaves <= octaves:
        return None
    low = max(math.floor(found.l50 / 2), found.shortest, 1)
    high = min(math.ceil(found.l50 * 2), found.longest)
    # An interval with no shape assumed narrows with the cube root of the questions near the
    # crossing; a new document has nearly all there.
    near = np.mean((rows["distance"] >= low) & (rows["distance"] <= high))
    needed = found.num_documents * near * ((found.octaves / octaves) ** 3 - 1)
    least, most = (math.ceil(share * found.num_documents) for share in (_LEAST, _MOST))
    return DistanceRange(low, high, int(np.clip(math.ceil(needed), least, most)))


def _merged(ranges: list[DistanceRange]) -> list[DistanceRange]:
    merged: list[DistanceRange] = []
    for low, high, num_documents in sorted(ranges):
        if merged and low <= merged[-1].high:
            last = merged.pop()
            low, high = last.low, max(last.high, high)
            num_documents = max(last.num_documents, num_documents)
        merged.append(DistanceRange(low, high, num_documents))
    return merged
