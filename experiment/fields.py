"""All fields of a config for `--help-fields`: dotted name, value, allowed values and meaning.

Allowed values come from the type hint, the meaning from "Attributes" of the docstring of the class.
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
    """One field of a config.

    Attributes:
      name: dotted name, as in an override.
      value: value, as in an override.
      kind: description of the allowed values.
      meaning: description from the docstring of the class.
    """

    name: str
    value: str
    kind: str
    meaning: str


def fields(value: Any, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of a config and of its parts.

    Args:
      value: an `ExperimentConfig`, or a part of one.
      prefix: dotted name of the part, with a final dot.
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
    """Return the fields as text."""
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
        # Lines with a larger indent continue an entry.
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
    """Describe a type hint: `whole number in [1, 10000] | none`."""
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
