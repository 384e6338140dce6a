"""The smallest base whose B_m stays non-negative below a length, with a proof.

Men et al. 2024 (arXiv 2405.14591), Eq. 18, and Su 2024 ask for

    b*(L) = inf { b > 1 : B_m(b) >= 0 for all m < L },  B_m(b) = Σ cos(m b^(-2i/d)).

The set of such b is no interval, so a grid proves nothing. Here every b below the answer lies in
an interval of x = ln b with a witness, one distance m whose B_m is negative on the whole interval:

    B_m(x + t) <= B_m(x) + B_m'(x) t + M t²/2  for t >= 0,

where M >= |B_m''| at x and, as every term's bound falls with x, to the right of it. The values on
the right are float64 results plus bounds on their errors (`_Taylor`), and the quadratic is convex:
negative at both ends of an interval, it is negative between them. See docs/theory.md.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ropewalk.model.rotary.rope import Rope
from ropewalk.theory import decay

_UNIT = 2.0**-53
_LAST_X = 500.0  # e^500 is the largest number tested
_GAPS = (2e-9, 8e-9, 5e-10, 1e-10, 2e-11)  # offsets right of the proof to check feasibility at
_POOL_SIZE = 24  # witnesses to try in the next steps
_MAX_NEW = 16  # new witnesses of one search
_NEAR = 16384  # tokens around the last witness, which are searched first
_SHORT = 4  # a step below 4 / m (30 / m is usual) starts a search for witnesses
_FIRST_CELL = 2**-5  # width in x, before halving
_CHUNK = 2**12  # distances of a block: arrays of a few MiB
_RESOLUTION = 1e-9  # of feasible intervals, in ln(base)


class Pairs(NamedTuple):
    """Pairs of a head of plain RoPE, whose frequencies are exp(-slope x), x = ln(base).

    Attributes:
      slope: float64 `[R]`, of the rotated pairs.
      unrotated: number of further pairs.
    """

    slope: np.ndarray
    unrotated: int


def pairs_of(head_dim: int, rotary_fraction: float = 1.0) -> Pairs:
    """Return the pairs of a head. Raises ValueError for a head without a rotated pair."""
    rope = Rope(base=2.0, rotary_fraction=rotary_fraction)
    num_rotated = int(np.count_nonzero(rope.inv_freq(head_dim)))
    return Pairs(np.arange(num_rotated) / num_rotated, head_dim // 2 - num_rotated)


# Bases from exp(left) to exp(right) of which none is feasible, as B_m of the witness, a distance in
# tokens, is negative for all x in [left, right], x = ln(base).
Infeasible = tuple[float, float, int]


class SmallestBase(NamedTuple):
    """b*(length) lies in [low, high].

    Attributes:
      length: context in tokens; distances below it count.
      low: every base in (1, low) is infeasible, as `certificate` proves.
      high: feasible at every distance, and at most 1e-8 above `low`.
      critical: the distance that becomes non-negative at b*; None if every base is feasible.
      certificate: intervals of infeasible bases, ascending; each begins where the last one ends.
    """

    length: int
    low: float
    high: float
    critical: int | None
    certificate: list[Infeasible]


class Intervals(NamedTuple):
    """Feasible and infeasible intervals of bases.

    Attributes:
      feasible: (low, high) of each feasible interval, ascending; the last high is inf.
      infeasible: ascending. Gaps between the two lists are less than 1e-9 wide in ln(base); they
        adjoin a feasible interval or are undecided.
    """

    feasible: list[tuple[float, float]]
    infeasible: list[Infeasible]


class _Taylor:
    """B_m, its derivative and curvature in x, for pairs of x `[K]` and m `[K]`, with error bounds.

    With u = 2^-53, y = slope x and angle a = m inv_freq: the exponent is off by at most
    8 u y + 16 u (which includes reading x back from a number rounded to float64), exp by 8 u, the
    products by 8 u; reducing to a cycle and the cosine add 24 u, n terms summed n² u.
    """

    def __init__(self, pairs: Pairs, x: np.ndarray, m: np.ndarray):
        x, m = np.asarray(x, dtype=np.float64)[:, None], np.asarray(m, dtype=np.float64)[:, None]
        n, s = pairs.slope.size, pairs.slope
        inv_freq = np.exp(-s * x)
        cycles = m * (inv_freq * (1 / (2 * np.pi)))
        phase = (cycles - np.rint(cycles)) * (2 * np.pi)
        self.terms = np.cos(phase)
        self.rates = m * (s * inv_freq) * np.sin(phase)
        angles = m * inv_freq
        self.curvatures = s * s * angles * np.sqrt(1 + angles * angles)
        relative = 8 * s * x + 32
        angle = m[:, 0] * (inv_freq * relative).sum(axis=1)
        self.value = self.terms.sum(axis=1) + pairs.unrotated
        self.value_error = _UNIT * (angle + n * (24 + n) + n * pairs.unrotated)
        self.rate = self.rates.sum(axis=1)
        speed = s * inv_freq * (relative + 24 + n)
        twist = s * inv_freq * inv_freq * relative
        self.rate_error = _UNIT * (m[:, 0] * speed.sum(axis=1) + m[:, 0] ** 2 * twist.sum(axis=1))
        self.curvature = self.curvatures.sum(axis=1) * (1 + 1e-9)


def reach(pairs: Pairs, x: float, witnesses: np.ndarray) -> np.ndarray:
    """Return the proved length of each witness's negative interval right of x, float64 `[K]`.

    B_m < 0 on [x, x + reach]; the reach is 0 if B_m is not negative at x.
    """
    taylor = _Taylor(pairs, np.array([x]), witnesses)
    value = taylor.value + taylor.value_error
    rate = taylor.rate + taylor.rate_error
    root = np.sqrt(np.maximum(rate * rate - 2 * taylor.curvature * value, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # The positive root of value + rate t + curvature t²/2, less one part in a thousand, which
        # exceeds the rounding errors. Each form is used where nothing cancels.
        step = np.where(rate > 0, -2 * value / (rate + root), (root - rate) / taylor.curvature)
    step = np.where(np.isnan(step), np.inf, step)  # B_m does not depend on x
    return np.where(value < 0, 0.999 * step, 0.0)


def _values(pairs: Pairs, x: float, first: int, length: int):
    """Yield (first distance, B_m, error bounds) of blocks of first <= m < length at x."""
    inv_freq = np.exp(-pairs.slope * x)
    # As in `_Taylor`; the pair of one radian per token at every x has no error.
    relative = np.where(pairs.slope == 0, 0, 8 * pairs.slope * x + 32)
    drift = _UNIT * float((inv_freq * relative).sum())
    all_inv_freq = np.concatenate([inv_freq, np.zeros(pairs.unrotated)])
    for start, values, error in decay.scan(all_inv_freq, first, length):
        yield start, values, error + drift * np.arange(start, start + values.size)


def _find_witnesses(pairs: Pairs, x: float, first: int, length: int) -> np.ndarray:
    """Return distances first <= m < length with negative B_m at x, the longest steps first."""
    witnesses = np.zeros(0, dtype=np.int64)
    for start, values, error in _values(pairs, x, first, length):
        negative = np.flatnonzero(values < -error)
        step_estimate = np.sqrt(-values[negative]) / (start + negative)
        witnesses = np.append(witnesses, start + negative[np.argsort(-step_estimate)[:_MAX_NEW]])
        # Short distances have long steps: later blocks are searched only if the steps are short.
        if witnesses.size and (reach(pairs, x, witnesses) * witnesses).max() > _SHORT:
            break
    return witnesses[np.argsort(-reach(pairs, x, witnesses))[:_MAX_NEW]]


def is_feasible(pairs: Pairs, x: float, length: int) -> bool:
    """Return whether B_m > 0 is certain for all m < length at x and at bases rounded to it."""
    return is_always_feasible(pairs) or all(
        (values > error).all() for _, values, error in _values(pairs, x, 0, length)
    )


def smallest(pairs: Pairs, lengths: Sequence[int]) -> list[SmallestBase]:
    """Return the smallest base for each length, ascending, in one sweep over x.

    Raises:
      ValueError: for lengths outside [2, 2**31], or that no base below e^500 covers.
      ArithmeticError: if float64 does not decide the answer: B_m of heads of two or three pairs may
        hardly depend on the base near its zero.
    """
    for length in lengths:
        check_length(length)
    x = 0.0
    certificate: list[Infeasible] = []
    pool = np.zeros(0, dtype=np.int64)
    answers = []
    for length in sorted(lengths):
        while not is_always_feasible(pairs):
            steps = reach(pairs, x, pool)
            near = max(0, certificate[-1][2] - _NEAR) if certificate else 0
            for first, last in ((near, near + 2 * _NEAR), (0, length)):
                if (steps * pool).max(initial=0) < _SHORT:
                    new = _find_witnesses(pairs, x, first, min(last, length))
                    pool = np.concatenate([new, pool[~np.isin(pool, new)]])[:_POOL_SIZE]
                    steps = reach(pairs, x, pool)
            if steps.max(initial=0) < _GAPS[-1] / 4:
                break
            best = int(steps.argmax())
            certificate.append((x, x + float(steps[best]), int(pool[best])))
            x = certificate[-1][1]
            if x > _LAST_X:
                raise ValueError(f"no base below e^{_LAST_X:g} covers {length} tokens")
        high = next((x + gap for gap in _GAPS if is_feasible(pairs, x + gap, length)), None)
        if high is None:
            raise ArithmeticError(f"float64 cannot decide ln(base) = {x!r} at {length} tokens")
        answers.append(
            SmallestBase(
                length=length,
                low=math.exp(x),
                high=math.exp(high),
                critical=certificate[-1][2] if certificate else None,
                certificate=certificate.copy(),
            )
        )
    return answers


def is_always_feasible(pairs: Pairs) -> bool:
    """Return whether the unrotated pairs outweigh all others (Su's note on partial rotation)."""
    return pairs.unrotated >= pairs.slope.size


def _positive_below(pairs: Pairs, x: float, length: int) -> int:
    """Return a distance M <= length such that B_m > 0 for all m < M, at x and right of it.

    cos is replaced by cos on [0, π] and -1 beyond, which never rises with the angle, and angles
    never rise with x. The pair of one radian per token counts with its smallest cosine.
    """
    blocks = decay.scan(np.ones(1), 0, length)
    minimum = pairs.unrotated + min(float(values.min()) - error for _, values, error in blocks)
    inv_freq = np.exp(-pairs.slope[1:] * x) * (1 + 1e-12)  # exceeds its relative error

    def is_undecided(m: int) -> bool:
        minorant = np.cos(np.minimum(m * inv_freq, np.pi))
        return minorant.sum() + minimum <= 1e-12 * (1 + pairs.slope.size)

    return bisect.bisect_left(range(length), True, key=is_undecided)


def _closed_threshold(pairs: Pairs, length: int) -> float:
    """Return an x above which every base is feasible, by `_positive_below`, to 1e-3."""
    low = high = 0.0
    while _positive_below(pairs, high, length) < length:
        low, high = high, high + 4
        if high > _LAST_X:
            raise ValueError(f"no base below e^{_LAST_X:g} is stable at {length} tokens")
    while high - low > 1e-3:
        middle = (low + high) / 2
        covered = _positive_below(pairs, middle, length) == length
        low, high = (low, middle) if covered else (middle, high)
    return high


def _cells(
    pairs: Pairs, length: int, left: float, right: float
) -> Iterator[tuple[float, float, bool, int | None]]:
    """Yield (left, right, feasible, witness) of cells of [left, right], right to left.

    Branch and bound: a cell is feasible if every B_m is positive on all of it, and has a witness if
    that distance's B_m is negative on all of it. Otherwise it is halved, and the halves evaluate
    only the undecided distances; a cell too narrow for that is neither.
    """
    edges = np.linspace(left, right, math.ceil((right - left) / _FIRST_CELL) + 1)
    for stop, start in itertools.pairwise(edges[::-1].tolist()):
        distances = np.arange(_positive_below(pairs, start, length), length)
        stack = [(start, stop, distances)]  # for all other distances, B_m > 0 on the cell is proved
        while stack:
            left, right, distances = stack.pop()
            middle, half = (left + right) / 2, (right - left) / 2
            undecided, witness = _undecided(pairs, middle, half, distances)
            if witness is None and undecided.size and right - left > _RESOLUTION:
                stack += [(left, middle, undecided), (middle, right, undecided)]
            else:
                yield left, right, witness is None and not undecided.size, witness


def _undecided(
    pairs: Pairs, x: float, half: float, distances: np.ndarray
) -> tuple[np.ndarray, int | None]:
    """Return the distances not proved positive on a cell, and a witness if there is one."""
    remaining = [distances[:0]]
    for first in range(0, distances.size, _CHUNK):
        m = distances[first : first + _CHUNK]
        lowest, highest = _range(pairs, x, half * (1 + 1e-9), m)
        if highest.min() < 0:
            return m, int(m[highest.argmin()])
        remaining.append(m[lowest <= 0])
    return np.concatenate(remaining), None


def _range(pairs: Pairs, x: float, half: float, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of B_m over [x - half, x + half], float64 `[K]`, by Taylor's formula at x."""
    taylor = _Taylor(pairs, np.array([x]), m)
    # Curvatures at the left end, where every angle is larger by at most exp(slope · half).
    quadratic = math.exp(2 * half * float(pairs.slope.max())) * half * half / 2
    error = taylor.value_error + taylor.rate_error * half
    swing = np.abs(taylor.rate) * half + taylor.curvature * quadratic + error
    # In wide cells, separate bounds of the cosines, each at least -1, are tighter.
    swings = np.abs(taylor.rates) * half + taylor.curvatures * (quadratic * (1 + 1e-9))
    separate = np.maximum(taylor.terms - swings, -1).sum(axis=1) + pairs.unrotated - error
    return np.maximum(taylor.value - swing, separate), taylor.value + swing


def intervals(
    pairs: Pairs,
    length: int,
    left: float = 1.0,
    *,
    last: bool = False,
    on_base: Callable[[float], None] = lambda base: None,
) -> Intervals:
    """Return all feasible intervals of bases above `left`, with a proof of completeness.

    With `last`, only the interval without end, above whose start every base is feasible, and one
    below it that is not. `on_base` is called with the base down to which the search has come.

    Raises:
      ValueError: for a length outside [2, 2**31], or that no base covers.
    """
    check_length(length)
    if is_always_feasible(pairs):
        return Intervals(feasible=[(1.0, math.inf)], infeasible=[])
    end = _closed_threshold(pairs, length)
    good, bad = [(end, math.inf)], []
    for low, high, feasible, witness in _cells(pairs, length, math.log(left), end):
        on_base(math.exp(low))
        if witness is not None:
            bad.append((low, high, witness))
            if last:
                break
        elif feasible and high == good[-1][0]:
            good[-1] = (low, good[-1][1])
        elif feasible and not last:
            good.append((low, high))
    return Intervals(
        feasible=[(math.exp(low), math.exp(high)) for low, high in reversed(good)],
        infeasible=bad[::-1],
    )


def check_length(length: int) -> None:
    """Raise ValueError unless 2 <= length <= 2**31."""
    if not 2 <= length <= decay.LONGEST:
        raise ValueError(f"length must be from 2 to 2^31 tokens, got {length}")


def smallest_base(length: int, head_dim: int = 128, rotary_fraction: float = 1.0) -> SmallestBase:
    """Return b*(length) of plain RoPE, to 1e-8.

    Args:
      length: context in tokens; B_m must be non-negative for all m < length.
      head_dim: features of a head, even.
      rotary_fraction: share of them that are rotated; each unrotated pair adds 1.

    Raises:
      ValueError: for a length outside [2, 2**31], a head without a rotated pair, or a length
        that no base covers (a single rotated pair).
    """
    return smallest(pairs_of(head_dim, rotary_fraction), [length])[0]
