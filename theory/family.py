"""Variants with one free number: the frequencies as functions of x = ln(number).

Each piece of a family is inv_freq_i(x) = exp(offset_i - slope_i x) + constant_i with slope_i >= 0:
a larger number never rotates a pair faster. `theory.bound` assumes only that. The formulas are in
`model.rotary` alone: slopes and offsets are computed from a variant's frequencies, and YaRN's ramp
from its class.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np

from model.rotary import Rotary
from model.rotary.rope import Rope
from model.rotary.yarn import Yarn
from utils.plugins import name_of

# Variants and numbers in which ln(inv_freq) is linear with a rational slope, so that two points
# determine it. The formulas of other variants do not imply this; YaRN is handled by its ramp.
_BASE_AND_FACTOR = ("position_interpolation", "ntk_aware", "ntk_fixed", "ntk_old", "yarn")
_FREE = [(name, "base") for name in ("rope", "method1", "p_rope", *_BASE_AND_FACTOR)]
_FREE += [(name, "factor") for name in _BASE_AND_FACTOR]

# Bound on the rounding error of the x of a jump, or of a number next to it (5e-13 at e^500).
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """The family for start <= x <= stop.

    Two pieces meet at a jump of the frequencies, and rounding decides which frequencies a number
    next to the jump has. A proof for one piece applies to its `certain_range`; a claim about all
    numbers must hold for each piece on its `possible_range`.

    Attributes:
      start, stop: range of x = ln(number).
      offset, slope, constant: float64 `[R]`, of the R rotated pairs.
      unrotated: number of further pairs, which are unrotated.
    """

    start: float = 0.0
    stop: float = math.inf
    offset: np.ndarray
    slope: np.ndarray
    constant: np.ndarray
    unrotated: int

    @property
    def certain_range(self) -> tuple[float, float]:
        """Range of x that certainly has these frequencies."""
        return self.start + _ROUNDING * (self.start > 0), self.stop - _ROUNDING

    @property
    def possible_range(self) -> tuple[float, float]:
        """Range of x that may have these frequencies."""
        return self.start - _ROUNDING * (self.start > 0), self.stop + _ROUNDING

    def inv_freq(self, x: float) -> np.ndarray:
        """Return the frequencies at x, float64 `[R]`, radians per token."""
        return np.exp(self.offset - self.slope * x) + self.constant


Family = tuple[Piece, ...]


def rope_base(head_dim: int, rotary_fraction: float = 1.0) -> Family:
    """Return plain RoPE with a free base."""
    return free_number(Rope(base=2.0, rotary_fraction=rotary_fraction), "base", head_dim)


def free_number(variant: Rotary, number: str, head_dim: int) -> Family:
    """Return the family of `variant` with one of its numbers free; its current value is ignored.

    Raises:
      ValueError: if no family is known for it.
    """
    exact = not isinstance(variant, Yarn) or variant.truncate
    if (name_of(type(variant)), number) not in _FREE or not exact:
        valid = ", ".join(f"{name}({number}=?)" for name, number in _FREE)
        raise ValueError(
            f"no bound is known for {number} of {name_of(type(variant))} with these parameters "
            f"(valid: {valid})"
        )
    if not isinstance(variant, Yarn):
        return (_line(variant, number, head_dim),)
    plain = _line(Rope(base=2.0, rotary_fraction=variant.rotary_fraction), "base", head_dim)
    free_yarn = _yarn_base if number == "base" else _yarn_factor
    return free_yarn(variant, plain, variant.rotary_dim(head_dim))


def _line(variant: Rotary, number: str, head_dim: int) -> Piece:
    """Return the piece of a variant whose ln(inv_freq) is linear in ln(number)."""

    def logarithms(x: float) -> np.ndarray:
        inv_freq = dataclasses.replace(variant, **{number: math.exp(x)}).inv_freq(head_dim)
        return np.log(inv_freq[inv_freq != 0])

    near, far = logarithms(1.0), logarithms(3.0)
    # The exact ratio: for large x, a rounded slope would change the exponent by more than
    # `theory.bound` assumes.
    slope = np.array(
        [float(Fraction(s).limit_denominator(head_dim)) for s in ((near - far) / 2).tolist()]
    )
    offset = near + slope
    offset = np.where(np.abs(offset) < 1e-15, 0.0, offset)  # 0 up to rounding
    unrotated = head_dim // 2 - slope.size
    return Piece(offset=offset, slope=slope, constant=np.zeros_like(slope), unrotated=unrotated)


def _yarn_factor(variant: Yarn, plain: Piece, rotary_dim: int) -> Family:
    """Return YaRN with a fixed base and a free factor."""
    share = variant.interpolated_shares(rotary_dim, math.log(variant.base))
    # inv_freq · (1 - share) + inv_freq · share · e^-x; pairs without a share are constant.
    slow = share > 0
    log_share = np.log(np.where(slow, share, 1.0))
    frequency = -math.log(variant.base) * plain.slope
    piece = dataclasses.replace(
        plain,
        offset=np.where(slow, frequency + log_share, frequency),
        slope=np.where(slow, 1.0, 0.0),
        constant=np.where(slow, np.exp(frequency) * (1 - share), 0.0),
    )
    return (piece,)


def _yarn_base(variant: Yarn, plain: Piece, rotary_dim: int) -> Family:
    """Return YaRN with a fixed factor and a free base; its ramp jumps from pair to pair."""
    edges = [0.0, *variant.jumps(rotary_dim), math.inf]
    pieces = []
    for start, stop in itertools.pairwise(edges):
        middle = (start + min(stop, start + 2)) / 2
        offset = np.log(variant.frequency_ratios(rotary_dim, middle))
        pieces.append(dataclasses.replace(plain, start=start, stop=stop, offset=offset))
    return tuple(pieces)
