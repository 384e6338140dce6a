"""Sequential sampling: more documents only where they narrow an interval.

The first round covers all distances. Members whose interval is still wide get more documents, with
questions within an octave of L50: questions far from L50 do not locate the fall.
`effective_context.estimate` reads the rows of all rounds together; the ceiling depends on the
questions of the first round.
"""

import math
from typing import NamedTuple

import numpy as np

from ropewalk.evals import rows as rows_lib
from ropewalk.evals.estimate.effective_context import TOO_FEW_ANSWERS, UNDETERMINED, estimate
from ropewalk.evals.rows import Rows

# Columns that identify a member. Seeds are separate: documents do not reduce their variance.
_MEMBER = ("run", "seed", "trained_length", "step", "rotary")

# Bounds on the documents of one round, as shares of the documents so far. The upper bound allows
# for an inaccurate first L50; the lower bound avoids rounds of a few documents.
_MAX_SHARE, _MIN_SHARE = 1.0, 0.125


class DistanceRange(NamedTuple):
    """Documents to add, with questions in a range of distances.

    Attributes:
      low, high: first and last distance, tokens.
      num_documents: number of documents; all get new numbers.
    """

    low: int
    high: int
    num_documents: int


def next_round(rows: Rows, *, octaves: float, max_documents: int) -> list[DistanceRange]:
    """Return the documents of the next round; none if every interval is narrow enough.

    A member needs documents if the part of its L50 interval within the distances measured is wider
    than `octaves`. A member without a fall needs none, or documents in the last octave if its
    interval extends below the longest distance. A member that has not learned needs none, and one
    with too few answers needs the number of documents that are enough. All
    members read the same documents, so overlapping ranges are merged, with the larger number of
    documents.

    Args:
      rows: of one task and length, all members and rounds so far, in columns of `evals.rows`.
      octaves: largest width of an interval, octaves; above an eighth (`evals.options.Precision`).
      max_documents: limit for all rounds together; once reached, the result is empty.

    Returns:
      Ranges in ascending order, without overlap.

    Raises:
      ValueError: as `effective_context.estimate`.
    """
    num_documents = len(np.unique(rows["document"]))
    documents_left = max_documents - num_documents
    if documents_left <= 0:
        return []
    members = [_member_range(member, octaves) for member in _members(rows)]
    ranges = _merge([range_ for range_ in members if range_ is not None])
    total = sum(range_.num_documents for range_ in ranges)
    if total <= documents_left:
        return ranges
    shares = [range_.num_documents * documents_left // total for range_ in ranges]
    shared = zip(ranges, shares, strict=True)
    return [range_._replace(num_documents=share) for range_, share in shared if share]


def _members(rows: Rows) -> list[Rows]:
    keys = list(zip(*(rows[name].tolist() for name in _MEMBER), strict=True))
    names = [dict(zip(_MEMBER, key, strict=True)) for key in sorted(set(keys))]
    return [rows_lib.select(rows, **name) for name in names]


def _member_range(rows: Rows, octaves: float) -> DistanceRange | None:
    """Return the documents that one member needs, if any."""
    member = estimate(rows)
    if member.verdict == TOO_FEW_ANSWERS:
        more = max(member.documents_needed - member.num_documents, 1)
        return DistanceRange(member.shortest, member.longest, more)
    if not member.has_l50 or member.octaves <= octaves:
        return None
    ends = member.mark, member.longest if member.verdict == UNDETERMINED else member.mark
    low = max(math.floor(ends[0] / 2), member.shortest)
    high = min(math.ceil(ends[1] * 2), member.longest)
    # Without an assumed shape, the interval's width falls with the cube root of the number of
    # questions near L50; nearly all questions of a new document are there.
    near = np.mean((rows["distance"] >= low) & (rows["distance"] <= high))
    needed = member.num_documents * near * ((member.octaves / octaves) ** 3 - 1)
    minimum, maximum = (
        math.ceil(share * member.num_documents) for share in (_MIN_SHARE, _MAX_SHARE)
    )
    return DistanceRange(low, high, int(np.clip(math.ceil(needed), minimum, maximum)))


def _merge(ranges: list[DistanceRange]) -> list[DistanceRange]:
    merged: list[DistanceRange] = []
    for low, high, num_documents in sorted(ranges):
        if merged and low <= merged[-1].high:
            last = merged.pop()
            low, high = last.low, max(last.high, high)
            num_documents = max(last.num_documents, num_documents)
        merged.append(DistanceRange(low, high, num_documents))
    return merged
