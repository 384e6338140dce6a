"""Schedules with one number left open: the frequencies as functions of x = ln(number).

Every family here is, piece by piece, inv_freq_i(x) = exp(offset_i - slope_i x) + constant_i with
slope_i >= 0: a larger number never turns a pair faster. `theory.bound` needs no more than that.
"""

import dataclasses
import itertools
import math

import numpy as np

from model.rotary.rope import Rope


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """The family for start <= x <= stop.

    Attributes:
      start, stop: range of x = ln(number).
      offset, slope, constant: float64 `[R]`, of the R pairs that turn.
      at_rest: how many further pairs never turn.
    """

    start: float
    stop: float
    offset: np.ndarray
    slope: np.ndarray
    constant: np.ndarray
    at_rest: int

    def inv_freq(self, x: float) -> np.ndarray:
        """float64 `[R]`, radians per token."""
        return np.exp(self.offset - self.slope * x) + self.constant


Family = tuple[Piece, ...]


def _exponents(head_dim: int, rotary_fraction: float) -> tuple[np.ndarray, int]:
    """2 i / rotary_dim of the turning pairs, and how many do not turn."""
    rotary_dim = Rope(base=2.0, rotary_fraction=rotary_fraction).rotary_dim(head_dim)
    return np.arange(0, rotary_dim, 2) / rotary_dim, (head_dim - rotary_dim) // 2


def _one_piece(offset: np.ndarray, slope: np.ndarray, at_rest: int) -> Family:
    zeros = np.zeros_like(slope)
    return (
        Piece(
            start=0.0, stop=math.inf, offset=offset, slope=slope, constant=zeros, at_rest=at_rest
        ),
    )


def rope_base(head_dim: int, rotary_fraction: float = 1.0) -> Family:
    """Plain RoPE, the base open."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    return _one_piece(np.zeros_like(exponents), exponents, at_rest)


def interpolation_base(head_dim: int, factor: float, rotary_fraction: float = 1.0) -> Family:
    """Position interpolation by a fixed factor, the base open."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    return _one_piece(np.full_like(exponents, -math.log(factor)), exponents, at_rest)


def interpolation_factor(head_dim: int, base: float, rotary_fraction: float = 1.0) -> Family:
    """Position interpolation of a fixed base, the factor open."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    return _one_piece(-math.log(base) * exponents, np.ones_like(exponents), at_rest)


def ntk_aware_base(head_dim: int, factor: float, rotary_fraction: float = 1.0) -> Family:
    """NTK-aware scaling by a fixed factor, the base open."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    return _one_piece(-math.log(factor) * _ntk_power(exponents) * exponents, exponents, at_rest)


def ntk_aware_factor(head_dim: int, base: float, rotary_fraction: float = 1.0) -> Family:
    """NTK-aware scaling of a fixed base, the factor open."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    return _one_piece(-math.log(base) * exponents, exponents * _ntk_power(exponents), at_rest)


def _ntk_power(exponents: np.ndarray) -> float:
    """d / (d - 2): the base is raised by factor to this power."""
    if exponents.size < 2:
        raise ValueError("ntk_aware needs rotary_dim >= 4, got 2")
    return exponents.size / (exponents.size - 1)


def yarn_factor(
    head_dim: int,
    base: float,
    original_context_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    rotary_fraction: float = 1.0,
) -> Family:
    """YaRN of a fixed base, the factor open."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    pairs = [
        _pair_that_turns(exponents, math.log(base), original_context_length / beta)
        for beta in (beta_fast, beta_slow)
    ]
    share = _interpolated_share(exponents, math.floor(pairs[0]), math.ceil(pairs[1]))
    # inv_freq · (1 - share) + inv_freq · share · e^-x; pairs without a share never change.
    slow = share > 0
    log_share = np.log(np.where(slow, share, 1.0))
    frequency = -math.log(base) * exponents
    return (
        Piece(
            start=0.0,
            stop=math.inf,
            offset=np.where(slow, frequency + log_share, frequency),
            slope=np.where(slow, 1.0, 0.0),
            constant=np.where(slow, np.exp(frequency) * (1 - share), 0.0),
            at_rest=at_rest,
        ),
    )


def yarn_base(
    head_dim: int,
    factor: float,
    original_context_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    rotary_fraction: float = 1.0,
) -> Family:
    """YaRN by a fixed factor, the base open: its ramp jumps where a bound passes a whole pair."""
    exponents, at_rest = _exponents(head_dim, rotary_fraction)
    rotary_dim = 2 * exponents.size
    wavelengths = [original_context_length / beta for beta in (beta_fast, beta_slow)]
    jumps = [
        rotary_dim * math.log(wavelength / (2 * math.pi)) / (2 * pair)
        for wavelength in wavelengths
        for pair in range(1, rotary_dim)
        if wavelength > 2 * math.pi
    ]
    edges = [0.0, *sorted(set(jumps)), math.inf]
    pieces = []
    for start, stop in itertools.pairwise(edges):
        middle = (start + min(stop, start + 2)) / 2
        low, high = (_pair_that_turns(exponents, middle, wavelength) for wavelength in wavelengths)
        share = _interpolated_share(exponents, math.floor(low), math.ceil(high))
        kept = np.log(1 + share * (1 / factor - 1))
        piece = _one_piece(kept, exponents, at_rest)[0]
        pieces.append(dataclasses.replace(piece, start=start, stop=stop))
    return tuple(pieces)


def _pair_that_turns(exponents: np.ndarray, log_base: float, wavelength: float) -> float:
    return exponents.size * math.log(wavelength / (2 * math.pi)) / log_base


def _interpolated_share(exponents: np.ndarray, low: int, high: int) -> np.ndarray:
    """How much of each pair is interpolated, as `model.rotary.yarn` has it."""
    low, high = max(low, 0), min(high, 2 * exponents.size - 1)
    return np.clip((np.arange(exponents.size) - low) / max(high - low, 1e-3), 0, 1)
