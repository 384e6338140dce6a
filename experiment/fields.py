"""Every field of a config, for `--help-fields`: its dotted name, its value, and what may be there.

What is said of a field stands in its class: the type hint, and the docstring's "Attributes".
"""

import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from experiment.config import ExperimentConfig
from model import rotary as rotary_lib
from model.rotary import Rotary


class Field(NamedTuple):
    """One field.

    Attributes:
      name: dotted, as an override has it.
      value: as an override would write it.
      kind: what may be there, in words.
      meaning: from the docstring of its class.
    """

    name: str
    value: str
    kind: str
    meaning: str


def fields(value: Any, prefix: str = "") -> Iterator[Field]:
    """The fields of a config, those of its parts included.

    Args:
      value: an `ExperimentConfig`, or a part of one.
      prefix: its dotted name, with a dot at its end.
    """
    hints = typing.get_type_hints(type(value), include_extras=True)
    meanings = _attributes(type(value))
    for field in dataclasses.fields(value):
        name, field_value = f"{prefix}{field.name}", getattr(value, field.name)
        if not dataclasses.is_dataclass(field_value) or isinstance(field_value, Rotary):
            yield Field(
                name, _written(field_value), _kind(hints[field.name]), meanings.get(field.name, "")
            )
        if dataclasses.is_dataclass(field_value):
            yield from fields(field_value, f"{name}.")


def field_names(config: ExperimentConfig) -> list[str]:
    """Return the dotted names of all fields."""
    return [field.name for field in fields(config)]


def listed(config: ExperimentConfig) -> str:
    """All of them as text, for people."""
    lines = []
    for field in fields(config):
        about = ": ".join(filter(None, (field.kind, field.meaning)))
        lines += [
            f"{field.name}={field.value}",
            textwrap.indent(textwrap.fill(about, 94), "      "),
        ]
    return "\n".join(lines) + "\n"


def _attributes(cls: type) -> dict[str, str]:
    """Read the meanings of fields from the docstrings of a class and its bases."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        section = section.partition("\n\n")[0]
        # An entry goes on where its next lines are indented further.
        for entry in re.sub(r"\n {3,}", " ", section).splitlines():
            names, _, meaning = entry.strip().partition(": ")
            meanings |= dict.fromkeys(names.split(", "), meaning)
    return meanings


def _written(value: Any) -> str:
    if isinstance(value, Rotary):
        return rotary_lib.label(value)
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return str(value).lower() if value is None or isinstance(value, bool) else f"{value}"


def _kind(hint: Any) -> str:
    """A type hint in words: `whole number in [1, 10000] | none`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return f"{_kind(arguments[0])} {arguments[1]}"
    if origin is typing.Literal:
        return " | ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_kind, arguments))
    if origin is tuple:
        return f"[{', '.join('...' if part is ... else _kind(part) for part in arguments)}]"
    if isinstance(hint, type) and issubclass(hint, Rotary):
        return "variant"
    names = {int: "whole number", float: "number", bool: "true | false", str: "text"}
    return names.get(hint, "none" if hint is types.NoneType else "object")
