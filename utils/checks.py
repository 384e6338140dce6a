"""Frozen dataclasses that check their fields against their own type hints.

    mode: Literal["off", "train"]        one of these words
    num_steps: Count                     a whole number, at least 1
    base: Annotated[float, Bounds(above=1)]

A type hint states the bounds of one field; `check(self)` in `__post_init__` enforces them. Only
rules between fields need code.
"""

import dataclasses
import functools
import math
import numbers
import types
import typing
from typing import Annotated, Any

from utils.messages import nearest, quoted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Range of a finite number."""

    above: float = -math.inf
    at_least: float = -math.inf
    at_most: float = math.inf

    def admit(self, value: float) -> bool:
        """Return whether `value` lies within."""
        return value > self.above and self.at_least <= value <= self.at_most

    def __str__(self):
        is_open, low = self.above > -math.inf, max(self.above, self.at_least)
        if self.at_most == math.inf:
            return f"{'above' if is_open else 'of at least'} {low:g}"
        return f"in {'(' if is_open else '['}{low:g}, {self.at_most:.10g}]"


Count = Annotated[int, Bounds(at_least=1)]
NonNegative = Annotated[float, Bounds(at_least=0)]
Positive = Annotated[float, Bounds(above=0)]
Layers = Annotated[int, Bounds(at_least=1, at_most=10_000)]
Seed = Annotated[int, Bounds(at_least=0, at_most=2**32 - 1)]
Share = Annotated[float, Bounds(at_least=0, at_most=1)]

# Range of float32, with which devices compute; other values would become infinite or 0.
SINGLE_MIN, SINGLE_MAX = 1.2e-38, 3.4e38
SinglePositive = Annotated[float, Bounds(at_least=SINGLE_MIN, at_most=SINGLE_MAX)]


def check(value: Any) -> None:
    """Raise ValueError for the first field of a dataclass whose value its type hint excludes.

    Checks words, numbers, booleans, and tuples and unions of them. Of a field that is a dataclass,
    only the class is checked, because a dataclass checks itself.
    """
    for name, hint in _hints(type(value)).items():
        if wrong := problem(getattr(value, name), hint):
            raise ValueError(f"{name} must be {wrong}")


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def problem(value: Any, hint: Any) -> str:
    """Describe what `value` must be; empty if the type hint admits it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind, bounds = arguments
        within = not problem(value, kind) and bounds.admit(value)
        return "" if within else f"{_word(value, kind)} {bounds}, got {quoted(value)}"
    if origin in (typing.Union, types.UnionType):
        problems = [problem(value, kind) for kind in arguments]
        return "" if "" in problems else problems[0]
    if origin is typing.Literal:
        if value in arguments:
            return ""
        hint_text = (
            nearest(value, arguments)
            if isinstance(value, str)
            else f"(valid: {str(arguments)[1:-1]})"
        )
        return f"one of the allowed values, got {quoted(value)}; {hint_text}"
    if origin is tuple:
        if not isinstance(value, tuple):
            return f"a tuple, got {quoted(value)}"
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        if len(kinds) != len(value):
            return f"{len(kinds)} values, got {quoted(value)}"
        return next(filter(None, map(problem, value, kinds)), "")
    if hint in (int, float):
        return "" if _is_number(value, hint) else f"{_word(value, hint)}, got {quoted(value)}"
    if hint in (str, bool, types.NoneType):
        word = {str: "a string", bool: "True or False"}.get(hint, "None")
        return "" if isinstance(value, hint) else f"{word}, got {quoted(value)}"
    is_class = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    if is_class and not isinstance(value, hint):
        return f"an object of {hint.__name__}, got {quoted(value)}"
    return ""


_INT64 = 2**63  # integers of arrays are below it


def _is_number(value: Any, kind: type) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not _is_finite(value):
        return False
    return kind is float or (value == math.floor(value) and abs(float(value)) < _INT64)


def _is_finite(value: numbers.Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _word(value: Any, kind: type) -> str:
    """Describe the kind of a number, without bounds."""
    if kind is float:
        return "a finite number"
    too_large = isinstance(value, (int, float)) and not -_INT64 < value < _INT64
    return "a whole number of 64 bits" if too_large else "a whole number"
