"""Base classes of rotary variants: a vector of frequencies and a scale on the logits.

A variant does not rotate anything. It defines, for one head, how far each feature pair rotates per
token; `model.positions` rotates and never reads the variant's name.
"""

import abc
import dataclasses
import numbers
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from ropewalk.utils.checks import SINGLE_MAX, Bounds, Count, check

Base = Annotated[float, Bounds(above=1, at_most=1e100)]
Factor = Annotated[float, Bounds(at_least=1, at_most=1e9)]  # stretches only
# Names of fields in transformers' rope parameters, where they differ.
_HF_NAMES = {
    "base": "rope_theta",
    "rotary_fraction": "partial_rotary_factor",
    "original_context_length": "original_max_position_embeddings",
}


def geometric_inv_freq(base: float, rotary_dim: int) -> np.ndarray:
    """Return `base ** (-2 i / rotary_dim)`, i < rotary_dim / 2, fastest first (2104.09864).

    Returns:
      float64 `[rotary_dim // 2]`, radians per token.
    """
    return float(base) ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


class HfHead(NamedTuple):
    """Entries of a Hugging Face config.json that its rope parameters depend on.

    Attributes:
      head_dim: features of a head that may rotate.
      context: max_position_embeddings, tokens.
      mla: whether attention is MLA, whose classes also multiply all logits by a temperature.
    """

    head_dim: int
    context: int
    mla: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(abc.ABC):
    """A rotary variant of one head: config entry and function in one frozen object.

    A new variant is one new file in this folder with one subclass, named after the file
    (`position_interpolation.py` defines `PositionInterpolation`). No other file needs its name.

    Attributes:
      rotary_fraction: share of a head's features that rotate, in (0, 1]. The exponent of the
        geometric series runs over the rotated features only (GPT-NeoX's `rotary_pct`).
      log_n: log-n scaling (Su), which multiplies a query at position p by
        log(p + 1) / log(trained context) so that the entropy of attention does not grow with
        length. "train" applies it at every position, "extrapolate" where it exceeds 1, "off" never.
    """

    rope_type: ClassVar[str | None] = None  # transformers' name, if it has the variant

    rotary_fraction: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    log_n: Literal["off", "train", "extrapolate"] = "off"

    def __post_init__(self):
        check(self)

    @abc.abstractmethod
    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the frequencies of rotated pairs, float64 `[rotary_dim // 2]`, rad per token."""

    @property
    def logit_scale(self) -> float:
        """Factor of q·k besides the usual 1 / sqrt(head_dim)."""
        return 1.0

    @property
    def unrotated_logit_scale(self) -> float:
        """The same for unrotated features, which DeepSeek and Phi-4 scale differently."""
        return self.logit_scale

    def at_length(self, length: int) -> "Rotary":
        """Return the variant for a row of `length` tokens, which differs for dynamic variants."""
        return self

    @property
    def is_dynamic(self) -> bool:
        """Whether frequencies depend on a row's length."""
        return type(self).at_length is not Rotary.at_length

    def rotary_dim(self, head_dim: int) -> int:
        """Return how many of `head_dim` features rotate: even, at least 2.

        Raises:
          ValueError: if `head_dim` is odd, or the fraction leaves no pair.
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
        """Return the frequencies of all pairs of a head; 0 for an unrotated pair.

        Returns:
          float64 `[head_dim // 2]`, radians per token: the pairs that rotate, then zeros.

        Raises:
          ValueError: see `rotary_dim`; if there is not one frequency per rotated pair; or if a
            frequency or scale is not finite.
        """
        rotary_dim = self.rotary_dim(head_dim)
        try:
            rotated = self.frequencies(rotary_dim)
            scales = np.abs([self.logit_scale, self.unrotated_logit_scale])
            is_finite = np.isfinite(rotated).all() and (scales <= SINGLE_MAX).all()
        except ArithmeticError:
            is_finite = False
        if not is_finite:
            raise ValueError(
                f"the parameters of {type(self).__name__} give a frequency or scale that is no "
                "finite number; use smaller ones"
            )
        if len(rotated) != rotary_dim // 2:
            raise ValueError(
                f"{type(self).__name__} has {len(rotated)} frequencies; {rotary_dim=} needs "
                f"{rotary_dim // 2}, one per pair"
            )
        return np.concatenate([rotated, np.zeros(head_dim // 2 - len(rotated))])

    def to_hf(self, head: HfHead) -> dict[str, Any] | None:
        """Return transformers' rope parameters of this `rope_type`.

        The default has all fields. `interop` accepts parameters only if transformers computes this
        variant's frequencies and scales from them; it writes other variants as vectors.

        Returns:
          None if there is no such type, or not for these values.
        """
        if self.rope_type is None:
            return None
        shared = {field.name for field in dataclasses.fields(Rotary)}
        own = {name: value for name, value in vars(self).items() if name not in shared}
        rope: dict[str, Any] = {"rope_type": self.rope_type}
        rope |= {_HF_NAMES.get(name, name): value for name, value in own.items()}
        if self.rotary_fraction < 1:
            rope["partial_rotary_factor"] = self.rotary_dim(head.head_dim) / head.head_dim
        return rope

    @classmethod
    def from_hf(cls, rope: Mapping[str, Any], head: HfHead, length: int) -> "Rotary | None":
        """Return the variant of transformers' rope parameters; the inverse of `to_hf`.

        Args:
          rope: parameters of this `rope_type`, without null values.
          head: other entries of the config.json.
          length: trained context of the imported model, tokens.

        Returns:
          None if this class has no such variant. `interop` then imports the vector.

        Raises:
          ValueError: if a value is not allowed.
        """
        values = {"original_max_position_embeddings": head.context, **rope}
        keys = {
            field.name: _HF_NAMES.get(field.name, field.name) for field in dataclasses.fields(cls)
        }
        return cls(**{name: values[key] for name, key in keys.items() if key in values})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretched(Rotary):
    """A geometric series whose pairs rotate up to `factor` times slower.

    Attributes:
      base: base of the unstretched series.
      factor: target context over original context, at least 1.
    """

    base: Base
    factor: Factor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamic(Rotary):
    """Plain RoPE up to the original context, and a stretch by each row's own factor beyond.

    A row's factor is its length over the original context. Other rows of a batch do not matter.

    Attributes:
      stretched: the variant of rows beyond the original context.
      base: base of the unstretched series.
      original_context_length: trained context, tokens.
    """

    stretched: ClassVar[type[Stretched]]

    base: Base
    original_context_length: Count

    def __post_init__(self):
        super().__post_init__()
        self.at_length(2 * self.original_context_length)  # reports invalid fields of `stretched`

    def at_length(self, length: int) -> Rotary:
        """Return `stretched` with the fields of this object and the factor for `length` tokens.

        Up to the original context, return this object: nothing changes, bit for bit.
        """
        factor = length / self.original_context_length
        if factor <= 1:
            return self
        names = {field.name for field in dataclasses.fields(self.stretched)}
        shared = {name: value for name, value in vars(self).items() if name in names}
        return self.stretched(**{**shared, "factor": factor})

    def frequencies(self, rotary_dim: int) -> np.ndarray:
        """Return the unstretched frequencies; see `Rotary.frequencies`."""
        return geometric_inv_freq(self.base, rotary_dim)


def check_target(original: int, target: int) -> None:
    """Raise ValueError if the target context is shorter than the original one."""
    if target < original:
        raise ValueError(
            f"target_context_length must be at least original_context_length={original}, "
            f"got {target!r}"
        )


def as_floats(values: Any) -> Any:
    """Convert a list or an array of numbers to a tuple of floats, which hashes and survives JSON.

    Other values are returned unchanged; `check` refuses them.
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, tuple | list):
        return values

    def is_number(value: Any) -> bool:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)

    return tuple(float(value) if is_number(value) else value for value in values)
