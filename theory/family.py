"""Variants with one number left open: the frequencies as functions of x = ln(number).

Every family here is, piece by piece, inv_freq_i(x) = exp(offset_i - slope_i x) + constant_i with
slope_i >= 0: a larger number never rotates a pair faster. `theory.bound` needs no more than that.
The formulas stand in `model.rotary` alone: slopes and offsets are read off the frequencies that a
variant gives, and of YaRN its own ramp is asked.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np

from model.rotary import Rotary
from model.rotary.rope import Rope
from model.rotary.yarn import Yarn
from settings.folders import name_of

# Numbers in which ln(inv_freq) is a straight line, its slope a ratio of whole numbers. What is read
# off at two points holds everywhere because the formulas say so: no other variant may stand here,
# but for YaRN, whose ramp is asked.
_BOTH = ("position_interpolation", "ntk_aware", "ntk_fixed", "ntk_old", "yarn")
_OPEN = [(name, "base") for name in ("rope", "method1", "p_rope", *_BOTH)]
_OPEN += [(name, "factor") for name in _BOTH]

# Of x, at least: what rounding moves a jump by, or the x of a number beside one (5e-13 at e^500).
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """The family for start <= x <= stop.

    Two pieces meet where the frequencies jump, and which of the two a number next to the jump has
    is a matter of rounding: what is claimed of one piece holds `surely` on it, and what is claimed
    of all numbers has to hold for either piece wherever x is `possibly` on it.

    Attributes:
      start, stop: range of x = ln(number).
      offset, slope, constant: float64 `[R]`, of the R rotated pairs.
      unrotated: how many further pairs there are.
    """

    start: float = 0.0
    stop: float = math.inf
    offset: np.ndarray
    slope: np.ndarray
    constant: np.ndarray
    unrotated: int

    @property
    def surely(self) -> tuple[float, float]:
        """The x that have these frequencies."""
        return self.start + _ROUNDING * (self.start > 0), self.stop - _ROUNDING

    @property
    def possibly(self) -> tuple[float, float]:
        """The x that may have these frequencies."""
        return self.start - _ROUNDING * (self.start > 0), self.stop + _ROUNDING

    def inv_freq(self, x: float) -> np.ndarray:
        """float64 `[R]`, radians per token."""
        return np.exp(self.offset - self.slope * x) + self.constant


Family = tuple[Piece, ...]


def rope_base(head_dim: int, rotary_fraction: float = 1.0) -> Family:
    """Plain RoPE, the base open."""
    return opened(Rope(base=2.0, rotary_fraction=rotary_fraction), "base", head_dim)


def opened(variant: Rotary, number: str, head_dim: int) -> Family:
    """The family of `variant` with one of its numbers open, whatever that is now.

    Raises:
      ValueError: if no family is known for it.
    """
    exact = not isinstance(variant, Yarn) or variant.truncate
    if (name_of(type(variant)), number) not in _OPEN or not exact:
        valid = ", ".join(f"{name}({each}=?)" for name, each in _OPEN)
        raise ValueError(
            f"no bound is known for {number} of {name_of(type(variant))} with these parameters "
            f"(valid: {valid})"
        )
    if not isinstance(variant, Yarn):
        return (_line(variant, number, head_dim),)
    plain = _line(Rope(base=2.0, rotary_fraction=variant.rotary_fraction), "base", head_dim)
    opened_yarn = _yarn_base if number == "base" else _yarn_factor
    return opened_yarn(variant, plain, variant.rotary_dim(head_dim))


def _line(variant: Rotary, number: str, head_dim: int) -> Piece:
    """The straight lines that ln(inv_freq) is in ln(number)."""

    def logarithms(x: float) -> np.ndarray:
        inv_freq = dataclasses.replace(variant, **{number: math.exp(x)}).inv_freq(head_dim)
        return np.log(inv_freq[inv_freq != 0])

    near, far = logarithms(1.0), logarithms(3.0)
    # The ratio itself, to the last bit: a slope that were off by its rounding error here would move
    # the exponent by more than `theory.bound` allows for where x is large.
    slope = np.array(
        [float(Fraction(s).limit_denominator(head_dim)) for s in ((near - far) / 2).tolist()]
    )
    offset = near + slope
    offset = np.where(np.abs(offset) < 1e-15, 0.0, offset)  # zero but for rounding
    unrotated = head_dim // 2 - slope.size
    return Piece(offset=offset, slope=slope, constant=np.zeros_like(slope), unrotated=unrotated)


def _yarn_factor(variant: Yarn, plain: Piece, rotary_dim: int) -> Family:
    """YaRN of a fixed base, the factor open."""
    share = variant.interpolated_shares(rotary_dim, math.log(variant.base))
    # inv_freq · (1 - share) + inv_freq · share · e^-x; pairs without a share never change.
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
    """YaRN by a fixed factor, the base open: its ramp jumps where a bound passes a whole pair."""
    edges = [0.0, *variant.jumps(rotary_dim), math.inf]
    pieces = []
    for start, stop in itertools.pairwise(edges):
        middle = (start + min(stop, start + 2)) / 2
        kept = variant.frequency_ratios(rotary_dim, middle)
        pieces.append(dataclasses.replace(plain, start=start, stop=stop, offset=np.log(kept)))
    return tuple(pieces)
