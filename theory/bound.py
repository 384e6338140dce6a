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

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from model.rotary.rope import Rope
from theory import decay

_UNIT = 2.0**-53
_LAST_X = 500.0  # e^500 is the largest number tested
_GAPS = (2e-9, 8e-9, 5e-10, 1e-10, 2e-11)  # offsets right of the proof to check feasibility at
_POOL_SIZE = 24  # witnesses to try in the next steps
_MAX_NEW = 16  # new witnesses of one search
_NEAR = 16384  # tokens around the last witness, which are searched first
_SHORT = 4  # a step below 4 / m (30 / m is usual) starts a search for witnesses


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


class Certificate(NamedTuple):
    """Proof that no base in (exp(left[0]), exp(right[-1])) is feasible.

    B_m of `witnesses[k]` is negative for all x in [left[k], right[k]], and the next interval begins
    at right[k].

    Attributes:
      left, right: float64 `[K]`, ascending, x = ln(base).
      witnesses: int64 `[K]`, distances in tokens.
    """

    left: np.ndarray
    right: np.ndarray
    witnesses: np.ndarray


class SmallestBase(NamedTuple):
    """b*(length) lies in [low, high].

    Attributes:
      length: context in tokens; distances below it count.
      low: every base in (1, low) is infeasible, as `certificate` proves.
      high: feasible at every distance, and at most 1e-8 above `low`.
      critical: the distance that becomes non-negative at b*; None if every base is feasible.
      certificate: intervals and witnesses.
    """

    length: int
    low: float
    high: float
    critical: int | None
    certificate: Certificate


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
        terms = np.cos(phase)
        rates = m * (s * inv_freq) * np.sin(phase)
        angles = m * inv_freq
        curvatures = s * s * angles * np.sqrt(1 + angles * angles)
        relative = 8 * s * x + 32
        angle = m[:, 0] * (inv_freq * relative).sum(axis=1)
        self.value = terms.sum(axis=1) + pairs.unrotated
        self.value_error = _UNIT * (angle + n * (24 + n) + n * pairs.unrotated)
        self.rate = rates.sum(axis=1)
        speed = s * inv_freq * (relative + 24 + n)
        twist = s * inv_freq * inv_freq * relative
        self.rate_error = _UNIT * (m[:, 0] * speed.sum(axis=1) + m[:, 0] ** 2 * twist.sum(axis=1))
        self.curvature = curvatures.sum(axis=1) * (1 + 1e-9)


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
    return _all_positive(pairs) or all(
        (values > error).all() for _, values, error in _values(pairs, x, 0, length)
    )


def smallest(pairs: Pairs, lengths: Sequence[int]) -> list[SmallestBase]:
    """Return the smallest base for each of ascending lengths, in one sweep over x.

    Raises:
      ValueError: for lengths outside [2, 2**31], that fall, or that no base below e^500 covers.
      ArithmeticError: if float64 does not decide the answer: B_m of heads of two or three pairs may
        hardly depend on the base near its zero.
    """
    for length in lengths:
        check_length(length)
    if list(lengths) != sorted(lengths):
        raise ValueError(f"lengths must not fall, got {list(lengths)}")
    x = 0.0
    left, right, witnesses = [], [], []
    pool = np.zeros(0, dtype=np.int64)
    answers = []
    for length in lengths:
        while not _all_positive(pairs):
            steps = reach(pairs, x, pool)
            near = max(0, witnesses[-1] - _NEAR) if witnesses else 0
            for first, last in ((near, near + 2 * _NEAR), (0, length)):
                if (steps * pool).max(initial=0) < _SHORT:
                    new = _find_witnesses(pairs, x, first, min(last, length))
                    pool = np.concatenate([new, pool[~np.isin(pool, new)]])[:_POOL_SIZE]
                    steps = reach(pairs, x, pool)
            if steps.max(initial=0) < _GAPS[-1] / 4:
                break
            best = int(steps.argmax())
            left.append(x)
            x += float(steps[best])
            right.append(x)
            witnesses.append(int(pool[best]))
            if x > _LAST_X:
                raise ValueError(f"no base below e^{_LAST_X:g} covers {length} tokens")
        certificate = Certificate(np.array(left), np.array(right), np.array(witnesses, np.int64))
        answers.append(
            SmallestBase(
                length=length,
                low=math.exp(right[-1] if right else x),
                high=math.exp(_feasible_above(pairs, x, length)),
                critical=witnesses[-1] if witnesses else None,
                certificate=certificate,
            )
        )
    return answers


def _feasible_above(pairs: Pairs, x: float, length: int) -> float:
    """Return a feasible point within 8e-9 right of x."""
    for gap in _GAPS:
        if is_feasible(pairs, x + gap, length):
            return x + gap
    raise ArithmeticError(f"float64 cannot decide ln(base) = {x!r} at {length} tokens")


def _all_positive(pairs: Pairs) -> bool:
    """Return whether the unrotated pairs outweigh all others (Su's note on partial rotation)."""
    return pairs.unrotated >= pairs.slope.size


def check_length(length: int) -> None:
    """Raise ValueError unless 2 <= length <= 2**31."""
    if not 2 <= length <= decay.LONGEST:
        raise ValueError(f"length must be from 2 to 2^31 tokens, got {length}")
