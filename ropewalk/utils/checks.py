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

from ropewalk.utils.messages import nearest, quoted


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
    only the class is checked, because a dataclass checks itself. A list becomes a tuple, and 1e4
    an integer, where the hint admits nothing else.
    """
    for name, hint in _hints(type(value)).items():
        object.__setattr__(value, name, _convert(getattr(value, name), _kinds(hint)))
        if wrong := problem(getattr(value, name), hint):
            raise ValueError(f"{name} must be {wrong}")


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@functools.cache
def _kinds(hint: Any) -> set[Any]:
    """Return the classes in a type hint, without their bounds."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _kinds(arguments[0])
    is_nested = origin is tuple or origin in _UNIONS
    return {origin}.union(*map(_kinds, arguments)) if is_nested else {hint}


def _convert(value: Any, kinds: set[Any]) -> Any:
    if isinstance(value, list | tuple) and tuple in kinds:
        return tuple(_convert(item, kinds) for item in value)
    if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds:
        return int(value)
    return value


def problem(value: Any, hint: Any) -> str:
    """Describe what `value` must be; empty if the type hint admits it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        problems = [problem(value, kind) for kind in arguments]
        return "" if "" in problems else problems[0]
    if origin is tuple and isinstance(value, tuple):
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        if len(kinds) == len(value):
            return next(filter(None, map(problem, value, kinds)), "")
    elif _admits(hint, value):
        return ""
    elif origin is typing.Literal and isinstance(value, str):
        return f"one of the allowed values, got {quoted(value)}; {nearest(value, arguments)}"
    return f"{describe(hint)}, got {quoted(value)}"


def _admits(hint: Any, value: Any) -> bool:
    """Return whether a hint without unions and tuples admits `value`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _admits(arguments[0], value) and arguments[1].admit(value)
    if origin is typing.Literal:
        return value in arguments
    if hint in (int, float):
        return _is_number(value, hint)
    is_checked = hint in (str, bool, types.NoneType) or dataclasses.is_dataclass(hint)
    if isinstance(hint, type) and is_checked:
        return isinstance(value, hint)
    return origin is not tuple


_UNIONS = (typing.Union, types.UnionType)
_WORDS = {
    **{int: "a whole number", float: "a finite number", bool: "True or False", str: "a string"},
    **{types.NoneType: "None", ...: "..."},
}


def describe(hint: Any) -> str:
    """Describe the values that a type hint admits: `a whole number of at least 1 | None`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return f"{describe(arguments[0])} {arguments[1]}"
    if origin is typing.Literal:
        return " | ".join(map(str, arguments))
    if origin in _UNIONS:
        return " | ".join(map(describe, arguments))
    if origin is tuple:
        return f"[{', '.join(map(describe, arguments))}]"
    return _WORDS.get(hint) or f"an object of {hint.__name__}"


def _is_number(value: Any, kind: type) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
    is_whole = is_finite and value == math.floor(value) and abs(float(value)) < 2**63
    return is_finite if kind is float else is_whole
