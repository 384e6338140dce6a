"""What every rotary variant is: a vector of frequencies and a scale on the logits.

A variant never rotates anything. It says, for one head, how far each feature pair rotates per
token; `model.positions` does the rotating and never learns the variant's name.
"""

import abc
import dataclasses
import numbers
from typing import Annotated, Any, Literal

import numpy as np

from settings.checks import Bounds, Count, check

Base = Annotated[float, Bounds(above=1)]
Factor = Annotated[float, Bounds(at_least=1)]  # a stretch, never a squeeze


def geometric_inv_freq(base: float, rotary_dim: int) -> np.ndarray:
    """`base ** (-2 i / rotary_dim)` for i < rotary_dim / 2, fastest first (RoFormer, 2104.09864).

    Returns:
      float64 `[rotary_dim // 2]`, radians per token.
    """
    return float(base) ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(abc.ABC):
    """One head's rotary variant: config entry and function in one frozen object.

    A new variant is one new file in this folder with one subclass, named as the file is
    (`position_interpolation.py` holds `PositionInterpolation`). Nothing else needs its name.

    Attributes:
      rotary_fraction: share of a head's features that rotate, in (0, 1]. The exponent of the
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
        """float64 `[rotary_dim // 2]`, radians per token, of the features that rotate."""

    @property
    def logit_scale(self) -> float:
        """Multiplies q·k besides the usual 1 / sqrt(head_dim)."""
        return 1.0

    @property
    def unrotated_logit_scale(self) -> float:
        """The same for unrotated features, where a method tells them apart (DeepSeek, Phi-4)."""
        return self.logit_scale

    def at_length(self, length: int) -> "Rotary":
        """The variant for a row of `length` tokens; dynamic variants return another."""
        return self

    def rotary_dim(self, head_dim: int) -> int:
        """How many of `head_dim` features rotate: even, at least 2.

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
        """How far each of the head's pairs rotates per token; 0 for an unrotated pair.

        Returns:
          float64 `[head_dim // 2]`, radians per token: the pairs that rotate, then zeros.

        Raises:
          ValueError: as `rotary_dim`, or if the variant has not one frequency a rotated pair.
        """
        rotary_dim = self.rotary_dim(head_dim)
        rotated = self.frequencies(rotary_dim)
        if len(rotated) != rotary_dim // 2:
            raise ValueError(
                f"{type(self).__name__} has {len(rotated)} frequencies; {rotary_dim=} needs "
                f"{rotary_dim // 2}, one a pair"
            )
        return np.concatenate([rotated, np.zeros(head_dim // 2 - len(rotated))])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretched(Rotary):
    """A geometric series whose pairs rotate up to `factor` times slower.

    Attributes:
      base: the base of the series being stretched.
      factor: target context over original context, at least 1.
    """

    base: Base
    factor: Factor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamic(Rotary):
    """Plain RoPE up to the original context, and for longer rows a factor of each row's own.

    A row's factor is its own length over the original context, never its neighbours' in a batch.

    Attributes:
      base: the base of the series being stretched.
      original_context_length: context the model was trained at, tokens.
    """

    base: Base
    original_context_length: Count

    def __post_init__(self):
        super().__post_init__()
        self.at_length(2 * self.original_context_length)  # what the stretched refuse, refused now

    @abc.abstractmethod
    def at_length(self, length: int) -> Rotary:
        """See `Rotary.at_length`: `self.stretched(VARIANT, length)`."""

    def stretched(self, variant: type[Stretched], length: int) -> Rotary:
        """`variant` with the fields given here, and the factor that covers `length` tokens.

        Up to the original context this object itself: nothing changes, bit for bit.
        """
        factor = length / self.original_context_length
        if factor <= 1:
            return self
        names = {field.name for field in dataclasses.fields(variant)}
        shared = {name: value for name, value in vars(self).items() if name in names}
        return variant(**{**shared, "factor": factor})

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Unstretched; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim)


def check_target(original: int, target: int) -> None:
    """Raises ValueError unless the context that is aimed at is the longer one."""
    if target < original:
        raise ValueError(
            f"target_context_length must be at least original_context_length={original}, "
            f"got {target!r}"
        )


def listed(values: Any) -> Any:
    """A list or an array of numbers as a tuple of floats, which hashes and survives JSON.

    What is no list of numbers is left as it is, for `check` to refuse.
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, tuple | list):
        return values

    def is_number(value: Any) -> bool:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)

    return tuple(float(value) if is_number(value) else value for value in values)
