"""D_H(M): how well the H heads of a layer can tell a matching key from others up to distance M.

A head matches content through pair i with a complex weight z_i = q_i conj(k_i). A matching key at
distance m scores Re sum_i z_i exp(i m inv_freq_i) = w . f(m), where

    f(m) = (cos m inv_freq_i, -sin m inv_freq_i)

is what the pairs make of that distance and w are the 2R real weights. A key that does not match
scores 0 on average, with variance |w|² / 2. In standard deviations, and over all weights and
phases, one head can therefore tell keys apart at every distance up to M by

    D_1(M) = √2 max_{|w| <= 1} min_{1 <= m <= M} w . f(m) = √2 dist(0, conv{f(1), ..., f(M)}).

The nearest point of the hull is found exactly, and its dual proves it. Heads of one layer may share
the distances: D_H(M) is the largest, over all partitions, of the least D_1 of a part. Searched for,
so what is found is a lower bound that its partition attains.

This is what weights could do, not what training finds: docs/theory.md says what is left out.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

LONGEST = 2**17  # tokens: every distance is a row in memory

_TOLERANCE = 1e-12  # of shares, and by how much one head's dual may fall short, over √2
_STARTS, _STEPS = 48, 1200
_SOLVED = 6  # of the starts: those that have climbed highest
_HARDEST, _HEADS = 6, 3  # distances of the worst part that are tried with so many other heads


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capability:
    """What the heads of a layer can tell apart at the worst of the distances.

    Attributes:
      value: attained by the weights found, in standard deviations of a key that does not match.
      certificate: what no weights exceed; None for several heads.
      partition: of each head, the distances it is to take care of: runs (first, last), tokens.
    """

    value: float
    certificate: float | None
    partition: tuple[tuple[tuple[int, int], ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """How far the heads of a layer can see.

    Attributes:
      l50: the last distance, in tokens, up to which keys can be told apart at every distance; one
        below the shortest where there is none.
      beyond: whether that is the longest distance asked about.
      needed: what D_H must reach for that.
    """

    l50: int
    beyond: bool
    needed: float

    def __str__(self) -> str:
        return f"> {self.l50}" if self.beyond else str(self.l50)


def of_heads(inv_freq_LKR: np.ndarray, num_heads: int) -> np.ndarray:
    """The frequencies of every query head, `[L, N, R]`, of a rotary table's `[L, K, R]`.

    Query heads that share a key have weights of their own: a query is free whatever the key.
    """
    return np.repeat(inv_freq_LKR, num_heads // inv_freq_LKR.shape[1], axis=1)


def accuracy(capability: float, num_others: int) -> float:
    """How often the key that matches scores above `num_others` independent ones that do not."""
    return NormalDist().cdf(capability) ** num_others


def needed(num_others: int) -> float:
    """The capability of which `accuracy` is one half.

    Raises:
      ValueError: without other keys.
    """
    if num_others < 1:
        raise ValueError(f"num_others must be at least 1 key, got {num_others}")
    return NormalDist().inv_cdf(0.5 ** (1 / num_others))


def capability(
    inv_freq_NR: np.ndarray, length: int, *, shortest: int = 1, enough: float = math.inf
) -> Capability:
    """D_H of the distances `shortest` to `length`.

    Args:
      inv_freq_NR: float64, radians per token, of each of N heads; 0 where a pair is unrotated.
      length: M, tokens.
      shortest: tokens.
      enough: the search over partitions stops where it has found as much.

    Raises:
      ValueError: for distances that are none, or not within 1 to 2^17.
    """
    if not 1 <= shortest <= length <= LONGEST:
        raise ValueError(
            f"distances must lie within 1 and {LONGEST} tokens, got {shortest} to {length}"
        )
    distances = np.arange(shortest, length + 1)
    f_NMW = np.stack([responses(inv_freq_R, distances) for inv_freq_R in inv_freq_NR])
    if len(f_NMW) == 1:
        found = _Parts.of(f_NMW, np.zeros(len(distances), int))
        certificate = math.sqrt(2) * found.worst()
    else:
        found, certificate = _best(f_NMW, enough / math.sqrt(2)), None
    # Of the weights found, not of the parts: what is said was attained.
    scores_NM = found.scores()
    head_M = scores_NM.argmax(axis=0)
    return Capability(
        value=math.sqrt(2) * max(0.0, float(scores_NM.max(axis=0).min())),  # no weights: 0
        certificate=certificate,
        partition=tuple(_runs(distances[head_M == head]) for head in range(len(f_NMW))),
    )


def forecast(
    inv_freq_NR: np.ndarray, *, num_others: int, longest: int, shortest: int = 1
) -> Forecast:
    """The longest length at which `capability` is what half-right answers need.

    Nothing in it is fitted. D_H never rises with the length, so that length is found by halving.

    Args:
      inv_freq_NR: as for `capability`.
      num_others: keys that a query could be mistaken for.
      longest, shortest: distances asked about, tokens.

    Raises:
      ValueError: as `capability` and `needed`.
    """
    least = needed(num_others)

    def seen(length: int) -> bool:
        found = capability(inv_freq_NR, length, shortest=shortest, enough=least)
        return found.value >= least

    if seen(longest):
        return Forecast(l50=longest, beyond=True, needed=least)
    low, high = shortest - 1, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seen(middle) else (low, middle)
    return Forecast(l50=low, beyond=False, needed=least)


def farthest(inv_freq_LNR: np.ndarray, *, num_others: int, longest: int) -> Forecast:
    """The `forecast` of the layer that sees farthest; arguments and errors as there.

    Layers count one by one: what one could make of another's output is not looked at.
    """
    different = np.unique(inv_freq_LNR, axis=0)
    found = [forecast(each, num_others=num_others, longest=longest) for each in different]
    return max(found, key=lambda each: each.l50)


def responses(inv_freq_R: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """f(m) of each distance, `[M, W]`: W = 2R."""
    angles_MR = np.outer(distances, inv_freq_R)
    return np.concatenate([np.cos(angles_MR), -np.sin(angles_MR)], axis=1)


def _runs(distances: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Ascending distances as runs (first, last)."""
    if not len(distances):
        return ()
    parts = np.split(distances, np.flatnonzero(np.diff(distances) > 1) + 1)
    return tuple((int(part[0]), int(part[-1])) for part in parts)


# --- one head ------------------------------------------------------------------------------------


def nearest_point(f_MW: np.ndarray) -> np.ndarray:
    """The point `[W]` of the rows' convex hull that is nearest to 0 (Wolfe 1976).

    It is found where no row lies below the plane through it, x . f >= |x|²: that is its dual.
    """
    with_one = np.insert(f_MW, 0, 1, axis=1)
    chosen = [int(np.argmin(np.einsum("mw,mw->m", f_MW, f_MW)))]
    shares = np.ones(1)
    point_W, norm = f_MW[chosen[0]], math.inf
    # Each step comes nearer, until rounding does not let it; W + 1 rows hold 0 itself among them.
    while (nearer := float(np.linalg.norm(point_W))) < norm and len(chosen) <= len(point_W):
        norm = nearer
        along_M = np.einsum("mw,w->m", f_MW, point_W)
        row = int(np.argmin(along_M))
        if along_M[row] >= norm * (norm - _TOLERANCE) or row in chosen:
            break
        chosen, shares = _corral(with_one, [*chosen, row], np.append(shares, 0.0))
        point_W = shares @ f_MW[chosen]
    return point_W


def _corral(
    with_one: np.ndarray, chosen: list[int], shares: np.ndarray
) -> tuple[list[int], np.ndarray]:
    """Of the chosen rows, those whose nearest *affine* combination has positive shares only.

    Args:
      with_one: `[M, 1 + W]`, (1, f) of every distance.
      chosen: rows of it.
      shares: of each chosen row in the point so far.
    """
    while True:
        # Least squares of (1, 0) on rows (1, f): the solution's direction is the combination's.
        # By its factors, as a matrix of products would know half as many digits.
        q, r = np.linalg.qr(with_one[chosen].T)
        affine = np.linalg.solve(r, q[0])
        affine /= affine.sum()
        if affine.min() > _TOLERANCE:
            return chosen, affine
        # As far towards it as the hull goes: there a share is 0, and its row is dropped.
        falling = affine <= _TOLERANCE
        steps = shares[falling] / np.maximum(shares[falling] - affine[falling], _TOLERANCE)
        shares = shares + min(1.0, steps.min()) * (affine - shares)
        kept = shares > _TOLERANCE
        chosen = [row for row, keep in zip(chosen, kept, strict=True) if keep]
        shares = shares[kept] / shares[kept].sum()


# --- several heads -------------------------------------------------------------------------------


class _Parts(NamedTuple):
    """A partition of the distances, and what each head makes of its part.

    Attributes:
      f_NMW: responses.
      head_M: the head of each distance.
      points_NW: the nearest point of each part's hull; zeros for an empty part.
      norms_N: how far from 0 it is; inf for an empty part.
    """

    f_NMW: np.ndarray
    head_M: np.ndarray
    points_NW: np.ndarray
    norms_N: np.ndarray

    @classmethod
    def of(cls, f_NMW: np.ndarray, head_M: np.ndarray) -> "_Parts":
        """Every part solved."""
        N, _, W = f_NMW.shape
        return cls(f_NMW, head_M, np.zeros((N, W)), np.zeros(N)).solved(head_M, range(N))

    def solved(self, head_M: np.ndarray, heads: Iterable[int]) -> "_Parts":
        """Another partition, in which the parts of these heads are others."""
        points_NW, norms_N = self.points_NW.copy(), self.norms_N.copy()
        for head in heads:
            part_MW = self.f_NMW[head][head_M == head]
            points_NW[head] = nearest_point(part_MW) if len(part_MW) else 0
            norms_N[head] = np.linalg.norm(points_NW[head]) if len(part_MW) else math.inf
        return _Parts(self.f_NMW, head_M, points_NW, norms_N)

    def scores(self) -> np.ndarray:
        """What every head's best unit weights make of every distance, `[N, M]`."""
        units_NW = self.points_NW / np.maximum(self.norms_N, 1e-300)[:, None]
        return np.einsum("nmw,nw->nm", self.f_NMW, units_NW)

    def worst(self) -> float:
        """The least D_1 of a part, over √2."""
        return float(self.norms_N.min())


def _best(f_NMW: np.ndarray, enough: float) -> _Parts:
    """The best partition found, or the first whose worst part is `enough`."""
    best = _Parts.of(f_NMW, np.zeros(f_NMW.shape[1], int))
    for head_M in _climbed(f_NMW):
        found = _moved(_settled(_Parts.of(f_NMW, head_M)), enough)
        best = max(best, found, key=_Parts.worst)
        if best.worst() >= enough:
            break
    return best


def _climbed(f_NMW: np.ndarray) -> Iterator[np.ndarray]:
    """Partitions `[M]`, the most promising first."""
    f_NMW = f_NMW.astype(np.float32)
    N, M, W = f_NMW.shape
    starts_SNM = (np.arange(N)[:, None] == _starts(N, M)[:, None]).astype(np.float32)
    w_NSW = np.einsum("snm,nmw->nsw", starts_SNM, f_NMW)
    # Products too small for a BLAS to start threads, which spin where other programs run.
    groups = np.array_split(w_NSW, math.ceil(_STARTS * M * W / 2**18), axis=1)
    scores_NSM = np.concatenate([_climb(f_NMW, each) for each in groups], axis=1)
    order = np.argsort(-scores_NSM.max(axis=0).min(axis=1))
    yield from scores_NSM.argmax(axis=0)[order[:_SOLVED]]


def _climb(f_NMW: np.ndarray, w_NSW: np.ndarray) -> np.ndarray:
    """The scores `[N, S, M]` to which the heads' weights climb together, from each of S starts.

    What they climb is the soft minimum over distances of the soft maximum over heads, less soft
    from step to step.
    """
    for step in range(_STEPS):
        w_NSW = w_NSW / np.maximum(1, np.linalg.norm(w_NSW, axis=2, keepdims=True))
        done = step / _STEPS
        sharp_NSM = 0.3 * 1000**done * (w_NSW @ f_NMW.transpose(0, 2, 1))
        largest_SM = sharp_NSM.max(axis=0)
        of_head_NSM = np.exp(sharp_NSM - largest_SM)
        total_SM = of_head_NSM.sum(axis=0)
        soft_SM = largest_SM + np.log(total_SM)
        of_distance_SM = np.exp(soft_SM.min(axis=1, keepdims=True) - soft_SM)
        of_distance_SM /= of_distance_SM.sum(axis=1, keepdims=True)
        slope_NSW = (of_head_NSM * (of_distance_SM / total_SM)) @ f_NMW
        w_NSW += (0.5 * (1 - done) + 0.01) / math.sqrt(f_NMW.shape[2] / 2) * slope_NSW
    return w_NSW @ f_NMW.transpose(0, 2, 1)


def _starts(num_heads: int, num_distances: int) -> np.ndarray:
    """Partitions to start from, `[S, M]`, the same at every call.

    Two thirds give neighbours to one head, cut evenly or in proportion; a third any to any.
    """
    rng = np.random.default_rng(0)
    count = _STARTS // 3
    even, proportional = np.sort(rng.uniform(size=(2, count, num_heads - 1)))
    cuts = np.concatenate([even * num_distances, num_distances**proportional])
    neighbours_SM = (np.arange(num_distances)[:, None] >= cuts[:, None]).sum(axis=2)
    return np.concatenate([neighbours_SM, rng.integers(num_heads, size=(count, num_distances))])


def _settled(parts: _Parts) -> _Parts:
    """Each distance to the head that does best there, each head's weights anew, and again."""
    while True:
        head_M = parts.scores().argmax(axis=0)
        other = head_M != parts.head_M
        following = parts.solved(head_M, np.unique([head_M[other], parts.head_M[other]]).tolist())
        if following.worst() <= parts.worst():
            return parts
        parts = following


def _moved(parts: _Parts, enough: float) -> _Parts:
    """Single distances of the worst part to other heads, as long as that helps."""
    following: _Parts | None = parts
    while following is not None:
        parts = following
        better = (each for each in _neighbours(parts) if parts.worst() < enough)
        following = next(better, None)
    return parts


def _neighbours(parts: _Parts) -> Iterator[_Parts]:
    """Partitions with one distance moved, whose two parts are both better than the worst was."""
    scores_NM, worst = parts.scores(), int(parts.norms_N.argmin())
    part = np.flatnonzero(parts.head_M == worst)
    for place in part[np.argsort(scores_NM[worst, part])[:_HARDEST]].tolist():
        others = [head for head in np.argsort(-scores_NM[:, place]).tolist() if head != worst]
        for head in others[:_HEADS]:
            head_M = parts.head_M.copy()
            head_M[place] = head
            moved = parts.solved(head_M, (worst, head))
            if moved.norms_N[[worst, head]].min() > parts.worst() + 1e-9:
                yield moved
