"""What every rotary schedule is: a vector of frequencies and a scale on the logits.

A schedule never rotates anything. It says, for one layer, how far each feature pair turns per
token; `model.positions` does the turning and never learns the schedule's name.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from settings.checks import Bounds, check


def geometric_inv_freq(base: float, rotary_dim: int) -> np.ndarray:
    """`base ** (-2 i / rotary_dim)` for i < rotary_dim / 2, fastest first (RoFormer, 2104.09864).

    Returns:
      float64 `[rotary_dim // 2]`, radians per token.
    """
    return float(base) ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(abc.ABC):
    """One layer's rotary schedule: config entry and function in one frozen object.

    A new schedule is one new file in this folder with one subclass, named as the file is
    (`position_interpolation.py` holds `PositionInterpolation`). Nothing else needs its name.

    Attributes:
      rotary_fraction: share of a head's features that turn, in (0, 1]. The exponent of the
        geometric series runs over the rotated features only (GPT-NeoX's `rotary_pct`).
      log_n: multiplies a query at position p by log(p + 1) / log(trained context), which keeps
        attention's entropy from growing with length (Su's log-n scaling). "train" applies it at
        every position, "extrapolate" only where it exceeds 1, "off" never.
    """

    rotary_fraction: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    log_n: Literal["off", "train", "extrapolate"] = "off"

    def __post_init__(self):
        check(self)

    @abc.abstractmethod
    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """float64 `[rotary_dim // 2]`, radians per token, of the features that turn."""

    @property
    def logit_scale(self) -> float:
        """Multiplies q·k besides the usual 1 / sqrt(head_dim)."""
        return 1.0

    @property
    def resting_logit_scale(self) -> float:
        """The same for features that do not turn, where a method tells them apart (MLA's)."""
        return self.logit_scale

    def at_length(self, length: int) -> "Rotary":
        """The schedule for a row of `length` tokens; dynamic schedules return another."""
        return self

    def rotary_dim(self, head_dim: int) -> int:
        """How many of `head_dim` features turn: even, at least 2.

        Raises:
          ValueError: if `head_dim` is odd, or the fraction leaves no whole pair.
        """
        if head_dim < 2 or head_dim % 2:
            raise ValueError(f"head_dim must be even and positive, got {head_dim}")
        rotary_dim = 2 * int(self.rotary_fraction * head_dim / 2 + 1e-9)
        if rotary_dim == 0:
            raise ValueError(
                f"rotary_fraction={self.rotary_fraction} of head_dim={head_dim} rotates no pair; "
                f"use nope, or at least {2 / head_dim:g}"
            )
        return rotary_dim

    def inv_freq(self, head_dim: int) -> np.ndarray:
        """How far each of the head's pairs turns per token; 0 means the pair does not turn.

        Returns:
          float64 `[head_dim // 2]`, radians per token: the pairs that turn, then zeros.
        """
        turning = self.frequencies(self.rotary_dim(head_dim))
        return np.concatenate([turning, np.zeros(head_dim // 2 - len(turning))])


def stretched(dynamic: Rotary, static: type[Rotary], length: int) -> Rotary:
    """`static` with the fields of `dynamic`, and the factor that covers `length` tokens.

    Up to `dynamic.original_context_length` the schedule itself: nothing changes, bit for bit.
    """
    factor = length / getattr(dynamic, "original_context_length")  # noqa: B009 (not Rotary's own)
    if factor <= 1:
        return dynamic
    names = {field.name for field in dataclasses.fields(static)}
    shared = {
        field.name: getattr(dynamic, field.name)
        for field in dataclasses.fields(dynamic)
        if field.name in names
    }
    return static(**shared | {"factor": factor})


def check_positive(schedule: Rotary, *names: str) -> None:
    """Raises ValueError unless each named number of `schedule` is finite and above zero."""
    for name in names:
        value = getattr(schedule, name)
        if not (isinstance(value, int | float) and 0 < value < np.inf):
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def check_factor(factor: float) -> None:
    """Raises ValueError unless `factor` is finite and at least 1: a stretch, never a squeeze."""
    if not (isinstance(factor, int | float) and 1 <= factor < np.inf):
        raise ValueError(f"factor must be a finite number of at least 1, got {factor!r}")


def float_tuple(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """`values` as a tuple of floats, so that it hashes and survives JSON.

    Raises:
      ValueError: if it is not a list of one or more finite numbers.
    """
    listed = tuple(values) if isinstance(values, tuple | list | np.ndarray) else ()
    numeric = all(isinstance(value, int | float | np.number) for value in listed)
    if not listed or not numeric or not np.isfinite(listed).all():
        raise ValueError(f"{name} must be a list of finite numbers, got {values!r}")
    return tuple(float(value) for value in listed)


def check_base(base: float) -> None:
    """Raises ValueError unless `base` is finite and above 1."""
    if not (isinstance(base, int | float) and 1 < base < np.inf):
        raise ValueError(f"base must be a finite number above 1, got {base!r}")
