"""D_H(M): how well the H heads of a layer distinguish a matching key from others up to distance M.

A head matches content through pair i with a complex weight z_i = q_i conj(k_i). A matching key at
distance m scores Re sum_i z_i exp(i m inv_freq_i) = w . f(m), where

    f(m) = (cos m inv_freq_i, -sin m inv_freq_i)

is the response of the pairs to that distance and w are the 2R real weights. A key that does not
match scores 0 on average, with variance |w|² / 2. In standard deviations, and over all weights and
phases, one head therefore distinguishes keys at every distance up to M by

    D_1(M) = √2 max_{|w| <= 1} min_{1 <= m <= M} w . f(m) = √2 dist(0, conv{f(1), ..., f(M)}).

The nearest point of the hull is computed exactly, and its dual proves it. Heads of one layer may
share the distances: D_H(M) is the maximum over all partitions of the smallest D_1 of a part. A
search finds the partition, so its result is a lower bound, which the partition attains.

D_H bounds what weights can do; docs/theory.md lists what training may not attain.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

LONGEST = 2**17  # tokens; every distance is a row in memory

_STARTS, _STEPS = 48, 1200
_SOLVED = 6  # starts with the highest scores, which are solved exactly
_HARDEST, _HEADS = 6, 3  # distances of the worst part, and other heads to move each of them to


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capability:
    """Capability of the heads of a layer at the worst of the distances.

    Attributes:
      value: attained by the computed weights, in standard deviations of a key that does not match.
      certificate: upper bound over all weights; None for several heads.
      partition: distances assigned to each head: runs (first, last), tokens.
    """

    value: float
    certificate: float | None
    partition: tuple[tuple[tuple[int, int], ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """Bound on L50 of the heads of a layer.

    Attributes:
      l50: longest length, in tokens, at which D_H is at least `needed`; 0 if there is none.
      beyond: whether `l50` is the longest distance tested.
      needed: required D_H.
    """

    l50: int
    beyond: bool
    needed: float

    def __str__(self) -> str:
        return f"> {self.l50}" if self.beyond else str(self.l50)


def query_head_frequencies(inv_freq_LKR: np.ndarray, num_heads: int) -> np.ndarray:
    """Return the frequencies of every query head, `[L, N, R]`, from those of key heads `[L, K, R]`.

    Query heads that share a key still have separate weights.
    """
    return np.repeat(inv_freq_LKR, num_heads // inv_freq_LKR.shape[1], axis=1)


def accuracy(capability: float, num_others: int) -> float:
    """Return the probability that a matching key scores above `num_others` independent others."""
    return NormalDist().cdf(capability) ** num_others


def required_capability(num_others: int) -> float:
    """Return the capability at which `accuracy` is one half. Raises ValueError for no others."""
    if num_others < 1:
        raise ValueError(f"num_others must be at least 1 key, got {num_others}")
    return NormalDist().inv_cdf(0.5 ** (1 / num_others))


def capability(inv_freq_NR: np.ndarray, length: int, *, target: float = math.inf) -> Capability:
    """Compute D_H of the distances 1 to `length`.

    Args:
      inv_freq_NR: float64, radians per token, of each of N heads; 0 for unrotated pairs.
      length: M, tokens.
      target: the search over partitions stops at this value.

    Raises:
      ValueError: for a length outside 1 to 2^17.
    """
    if not 1 <= length <= LONGEST:
        raise ValueError(f"length must be from 1 to {LONGEST} tokens, got {length}")
    distances = np.arange(1, length + 1)
    f_NMW = np.stack([responses(inv_freq_R, distances) for inv_freq_R in inv_freq_NR])
    if len(f_NMW) == 1:
        parts = _Partition.solve(f_NMW, np.zeros(len(distances), int))
        certificate = math.sqrt(2) * parts.worst()
    else:
        parts, certificate = _search(f_NMW, target / math.sqrt(2)), None
    # The value is that of the weights, not of the partition: it is attained.
    scores_NM = parts.scores()
    head_M = scores_NM.argmax(axis=0)
    return Capability(
        value=math.sqrt(2) * max(0.0, float(scores_NM.max(axis=0).min())),  # zero weights: 0
        certificate=certificate,
        partition=tuple(find_runs(distances[head_M == head]) for head in range(len(f_NMW))),
    )


def bound_l50(inv_freq_NR: np.ndarray, *, num_others: int, longest: int) -> Bound:
    """Return the longest length at which accuracy .5 is possible among `num_others` keys.

    Nothing is fitted. D_H never rises with the length, so bisection finds that length.

    Args:
      inv_freq_NR: as for `capability`.
      num_others: number of keys that do not match.
      longest: largest length to try, tokens.

    Raises:
      ValueError: as `capability` and `required_capability`.
    """
    required = required_capability(num_others)

    def is_possible(length: int) -> bool:
        return capability(inv_freq_NR, length, target=required).value >= required

    if is_possible(longest):
        return Bound(l50=longest, beyond=True, needed=required)
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_possible(middle) else (low, middle)
    return Bound(l50=low, beyond=False, needed=required)


def bound_layers(layers: Iterable[tuple[np.ndarray, int]], *, num_others: int) -> Bound:
    """Return the largest `bound_l50` of any layer; equal layers are computed once.

    Layers are independent here: the use of one layer's output by another is not modeled.

    Args:
      layers: `inv_freq_NR` and `longest` of each layer, as for `bound_l50`, with its errors.
      num_others: number of keys that do not match.
    """
    unique = {(heads_NR.tobytes(), longest): heads_NR for heads_NR, longest in layers}
    bounds = (
        bound_l50(heads_NR, num_others=num_others, longest=longest)
        for (_, longest), heads_NR in unique.items()
    )
    return max(bounds, key=lambda bound: bound.l50)


def responses(inv_freq_R: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return f(m) of each distance, `[M, W]`, W = 2R."""
    angles_MR = np.outer(distances, inv_freq_R)
    return np.concatenate([np.cos(angles_MR), -np.sin(angles_MR)], axis=1)


def find_runs(numbers: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return the runs (first, last) of consecutive integers among ascending ones."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return tuple((int(run[0]), int(run[-1])) for run in runs if len(run))


def format_runs(runs: Iterable[tuple[int, int]]) -> str:
    """Return runs as text, for example "1-17, 51"."""
    texts = (f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return ", ".join(texts) or "none"


# --- one head ------------------------------------------------------------------------------------


def nearest_point(f_MW: np.ndarray) -> np.ndarray:
    """Return the point `[W]` of the rows' convex hull that is nearest to 0.

    Its dual proves it: no row lies below the plane through the point, x . f >= |x|². The shares of
    the rows are proportional to the u >= 0 that minimize (Σ u - 1)² + |Σ u f|²: with the point x
    and the best Σ u, this is |x|² / (1 + |x|²).
    """
    from scipy import optimize  # late: it is slow to import

    one_and_f = np.insert(f_MW, 0, 1, axis=1).T
    # scipy's limit of 3 M steps is too low for some hulls that contain 0.
    u_M, _ = optimize.nnls(one_and_f, np.eye(1, len(one_and_f))[0], maxiter=1000 * len(f_MW))
    return u_M @ f_MW / u_M.sum()


# --- several heads -------------------------------------------------------------------------------


class _Partition(NamedTuple):
    """A partition of the distances among the heads, with the solution of each part.

    Attributes:
      f_NMW: responses.
      head_M: the head of each distance.
      points_NW: the nearest point of each part's hull; zeros for an empty part.
      norms_N: the point's distance from 0; inf for an empty part.
    """

    f_NMW: np.ndarray
    head_M: np.ndarray
    points_NW: np.ndarray
    norms_N: np.ndarray

    @classmethod
    def solve(cls, f_NMW: np.ndarray, head_M: np.ndarray) -> "_Partition":
        """Solve every part of a partition."""
        N, _, W = f_NMW.shape
        return cls(f_NMW, head_M, np.zeros((N, W)), np.zeros(N)).reassign(head_M, range(N))

    def reassign(self, head_M: np.ndarray, heads: Iterable[int]) -> "_Partition":
        """Return another partition, in which the parts of `heads` differ."""
        points_NW, norms_N = self.points_NW.copy(), self.norms_N.copy()
        for head in heads:
            part_MW = self.f_NMW[head][head_M == head]
            points_NW[head] = nearest_point(part_MW) if len(part_MW) else 0
            norms_N[head] = np.linalg.norm(points_NW[head]) if len(part_MW) else math.inf
        return _Partition(self.f_NMW, head_M, points_NW, norms_N)

    def scores(self) -> np.ndarray:
        """Return the score of every distance by every head's best unit weights, `[N, M]`."""
        units_NW = self.points_NW / np.maximum(self.norms_N, 1e-300)[:, None]
        return np.einsum("nmw,nw->nm", self.f_NMW, units_NW)

    def worst(self) -> float:
        """Return the smallest D_1 of a part, over √2."""
        return float(self.norms_N.min())


def _search(f_NMW: np.ndarray, target: float) -> _Partition:
    """Return the best partition of the search, or the first that attains `target`."""
    best = _Partition.solve(f_NMW, np.zeros(f_NMW.shape[1], int))
    for head_M in _initial_partitions(f_NMW):
        partition = _move_distances(_alternate(_Partition.solve(f_NMW, head_M)), target)
        best = max(best, partition, key=_Partition.worst)
        if best.worst() >= target:
            break
    return best


def _initial_partitions(f_NMW: np.ndarray) -> Iterator[np.ndarray]:
    """Yield partitions `[M]`, by descending score of gradient ascent from random starts."""
    f_NMW = f_NMW.astype(np.float32)
    N, M, W = f_NMW.shape
    starts_SNM = (np.arange(N)[:, None] == _starts(N, M)[:, None]).astype(np.float32)
    w_NSW = np.einsum("snm,nmw->nsw", starts_SNM, f_NMW)
    # Products too small for BLAS threads, which spin while other programs run.
    groups = np.array_split(w_NSW, math.ceil(_STARTS * M * W / 2**18), axis=1)
    scores_NSM = np.concatenate([_climb(f_NMW, group) for group in groups], axis=1)
    order = np.argsort(-scores_NSM.max(axis=0).min(axis=1))
    yield from scores_NSM.argmax(axis=0)[order[:_SOLVED]]


def _climb(f_NMW: np.ndarray, w_NSW: np.ndarray) -> np.ndarray:
    """Return the scores `[N, S, M]` after gradient ascent of all heads' weights from S starts.

    The objective is the soft minimum over distances of the soft maximum over heads, whose sharpness
    grows with the steps.
    """
    for step in range(_STEPS):
        w_NSW = w_NSW / np.maximum(1, np.linalg.norm(w_NSW, axis=2, keepdims=True))
        done = step / _STEPS
        sharp_NSM = 0.3 * 1000**done * (w_NSW @ f_NMW.transpose(0, 2, 1))
        largest_SM = sharp_NSM.max(axis=0)
        head_share_NSM = np.exp(sharp_NSM - largest_SM)
        total_SM = head_share_NSM.sum(axis=0)
        soft_SM = largest_SM + np.log(total_SM)
        distance_share_SM = np.exp(soft_SM.min(axis=1, keepdims=True) - soft_SM)
        distance_share_SM /= distance_share_SM.sum(axis=1, keepdims=True)
        slope_NSW = (head_share_NSM * (distance_share_SM / total_SM)) @ f_NMW
        w_NSW += (0.5 * (1 - done) + 0.01) / math.sqrt(f_NMW.shape[2] / 2) * slope_NSW
    return w_NSW @ f_NMW.transpose(0, 2, 1)


def _starts(num_heads: int, num_distances: int) -> np.ndarray:
    """Return initial partitions, `[S, M]`, the same at every call.

    Two thirds assign intervals, with uniform or log-uniform cuts; a third are random.
    """
    rng = np.random.default_rng(0)
    count = _STARTS // 3
    even, proportional = np.sort(rng.uniform(size=(2, count, num_heads - 1)))
    cuts = np.concatenate([even * num_distances, num_distances**proportional])
    intervals_SM = (np.arange(num_distances)[:, None] >= cuts[:, None]).sum(axis=2)
    return np.concatenate([intervals_SM, rng.integers(num_heads, size=(count, num_distances))])


def _alternate(partition: _Partition) -> _Partition:
    """Assign each distance to its best head and solve the parts again, until nothing improves."""
    while True:
        head_M = partition.scores().argmax(axis=0)
        is_moved = head_M != partition.head_M
        heads = np.unique([head_M[is_moved], partition.head_M[is_moved]]).tolist()
        following = partition.reassign(head_M, heads)
        if following.worst() <= partition.worst():
            return partition
        partition = following


def _move_distances(partition: _Partition, target: float) -> _Partition:
    """Move single distances of the worst part to other heads, while that improves it."""
    while partition.worst() < target and (moved := next(_neighbors(partition), None)):
        partition = moved
    return partition


def _neighbors(partition: _Partition) -> Iterator[_Partition]:
    """Yield partitions with one distance moved, whose two parts both exceed the worst part."""
    scores_NM, worst = partition.scores(), int(partition.norms_N.argmin())
    part = np.flatnonzero(partition.head_M == worst)
    for index in part[np.argsort(scores_NM[worst, part])[:_HARDEST]].tolist():
        heads = [head for head in np.argsort(-scores_NM[:, index]).tolist() if head != worst]
        for head in heads[:_HEADS]:
            head_M = partition.head_M.copy()
            head_M[index] = head
            moved = partition.reassign(head_M, (worst, head))
            if moved.norms_N[[worst, head]].min() > partition.worst() + 1e-9:
                yield moved
