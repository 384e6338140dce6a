"""Fields of a config by dotted name: overrides (`model.rotary.base=500`), and the list of all.

Allowed values come from the type hint of a field, its meaning from "Attributes" of the docstring of
the class. Reading a run needs only this module; `experiment.overrides` makes sweeps of overrides.
"""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ropewalk.experiment.config import ExperimentConfig, is_operational, stored_fields
from ropewalk.model import rotary as rotary_lib
from ropewalk.model.rotary import Rotary
from ropewalk.utils.checks import describe, problem
from ropewalk.utils.command_line import tokens
from ropewalk.utils.expressions import literal, split_commas, unbalanced, unquote
from ropewalk.utils.messages import nearest, one_line, quoted

# Names that other codebases have for fields.
_OTHER_NAMES = {
    "theta": "model.rotary.base",
    "rope_theta": "model.rotary.base",
    "lr": "train.learning_rate",
    "seq_len": "data.context_length",
    "max_seq_len": "data.context_length",
    "block_size": "data.context_length",
    "hidden_size": "model.embed_dim",
    "d_model": "model.embed_dim",
}
_Changes = list[tuple[list[str], str]]  # parts of the dotted name, and the value as typed
_LENGTHS = ("context_length", "lengths", "window")  # fields that also accept 4k


def apply(config: ExperimentConfig, overrides: Sequence[str]) -> ExperimentConfig:
    """Apply every `dotted.field=value` of `overrides` to `config`, in order.

    Values are checked against each other once, at the end of each object's changes. `seed` is the
    data's seed too, unless `data.seed` is given.

    Raises:
      ValueError: naming the override, what is wrong, and the nearest valid field.
    """
    changes = []
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path:
            raise ValueError(f"override {quoted(override)} is not of the form dotted.field=value")
        changes.append((path.split("."), text))
    changed = _replace(config, changes, "", [field.name for field in fields(config)])
    paths = [path for path, _ in changes]
    if ["seed"] in paths and ["data", "seed"] not in paths:
        # Runs that share their rows differ less than independent runs.
        data = dataclasses.replace(changed.data, seed=changed.seed)
        changed = dataclasses.replace(changed, data=data)
    return changed


def _replace(value: Any, changes: _Changes, prefix: str, all_names: Sequence[str]) -> Any:
    hints = typing.get_type_hints(type(value), include_extras=True)
    fields = {field.name for field in stored_fields(type(value))}
    derived = {field.name for field in dataclasses.fields(value)} - fields
    new: dict[str, Any] = {}
    refinements: dict[str, _Changes] = {}
    for (name, *rest), text in changes:
        where = prefix + name
        if name in derived:
            raise ValueError(f"{where} follows from other fields and cannot be set; leave it out")
        if name not in fields:
            hint = _hint_elsewhere(where, all_names) or nearest(name, fields)
            if isinstance(value, Rotary):
                hint = f"{rotary_lib.label(value)} has no {one_line(name, 60)}; {hint}"
            raise ValueError(f"unknown field {quoted(where)}; {hint}")
        if rest:  # an object (model.rotary=..) may be refined afterwards (model.rotary.base)
            refinements.setdefault(name, []).append((rest, text))
        elif name in refinements:
            refined = ".".join([where, *refinements[name][0][0]])
            override = one_line(f"{where}={text}", 60)
            raise ValueError(f"{override} would replace {refined}; give it before that")
        else:
            new[name] = _parse(text, hints[name], where)
    for name, refinement in refinements.items():
        where, current = prefix + name, new.get(name, getattr(value, name))
        if not dataclasses.is_dataclass(current):
            kinds = typing.get_args(hints[name])
            if current is None and any(map(dataclasses.is_dataclass, kinds)):
                advice = f"{where} is none here; use a config that has it, or a file of yours"
                raise ValueError(f"{advice} (train.py CONFIG --write FILE.py)")
            raise ValueError(f"{where} has no fields of its own; write {where}=VALUE")
        new[name] = _replace(current, refinement, where + ".", all_names)
    try:
        return dataclasses.replace(value, **new)
    except ValueError as error:
        raise ValueError(one_line(f"{prefix.rstrip('.') or 'config'}: {error}")) from error


def _hint_elsewhere(where: str, all_names: Sequence[str]) -> str:
    """Return `did you mean X?` for a field of another object, or "" if no name is similar."""
    name, other_names = where.rpartition(".")[2], [other for other in all_names if other != where]
    same = [other for other in other_names if other.rpartition(".")[2] == name]
    alike = [other for other in other_names if len(name) > 3 and name in other.rpartition(".")[2]]
    matches = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else same or alike
    return f"did you mean {' or '.join(map(repr, matches[:2]))}?" if matches else ""


def _parse(text: str, hint: Any, where: str) -> Any:
    """Parse `text` as a value of the type `hint`, with its bounds."""
    bounded = hint
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if text.lower() == "none" and type(None) in arguments:
            return None
        # `[a,b]` is the union's tuple, where it has one; anything else its plain type.
        listed = text.startswith("[")
        kinds = [kind for kind in arguments if kind is not type(None)]
        fitting = [kind for kind in kinds if (typing.get_origin(kind) is tuple) == listed]
        return _parse(text, (fitting or kinds)[0], where)
    if origin is tuple:
        if wrong := unbalanced(text):
            raise ValueError(f"{where}: {wrong}")
        items = text[1:-1] if text[:1] + text[-1:] in ("[]", "()") else text
        if not items.strip():
            return ()
        parts = [item.strip() for item in split_commas(items)]
        kinds = arguments[:1] * len(parts) if arguments[1:] == (...,) else arguments
        if len(kinds) != len(parts):
            raise ValueError(f"{where}={one_line(text, 60)} must be {len(kinds)} values")
        is_flat = parts[1:] and not all(part.startswith(("[", "(")) for part in parts)
        if is_flat and typing.get_origin(kinds[0]) is tuple:  # one stage of two changes, or two?
            raise ValueError(f"{where}={one_line(text, 60)} needs brackets within: [[...],[...]]")
        return tuple(_parse(part, kind, where) for part, kind in zip(parts, kinds, strict=True))
    if isinstance(hint, type) and issubclass(hint, Rotary):
        _check_single(text, where)
        try:
            return rotary_lib.parse(unquote(text))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if dataclasses.is_dataclass(hint):
        raise ValueError(f"{where} is an object; set one of its fields: {where}.FIELD=VALUE")
    value: Any = unquote(text) if hint is str else text
    if where.rpartition(".")[2] in _LENGTHS and text[-1:].lower() in ("k", "m"):
        with contextlib.suppress(argparse.ArgumentTypeError):
            value = tokens(text)
    elif hint in (int, float, bool) or not all(isinstance(word, str) for word in arguments):
        with contextlib.suppress(ValueError):  # the check below rejects words
            value = literal(text.title() if hint is bool else text)
    if wrong := problem(value, bounded):
        _check_single(text, where)
        raise ValueError(f"{where}={one_line(text, 60)} must be {wrong}")
    return hint(value) if hint in (int, float) else value


def _check_single(text: str, where: str) -> None:
    """Raise ValueError for a list of values, which would make members of a sweep."""
    values = text[1:-1] if text[:1] + text[-1:] in ("[]", "()") else text
    # The parser of the value reports an open bracket.
    if unbalanced(text) or len(split_commas(values)) == 1:
        return
    advice = f"ropewalk sweep trains a member of each: {where}={one_line(values, 60)}"
    if is_operational(where):
        advice = "it does not change what is trained, so it makes no members: give one value"
    raise ValueError(f"{where}={one_line(text, 60)} lists several values; {advice}")


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
    for field in stored_fields(type(value)):
        name, field_value = f"{prefix}{field.name}", getattr(value, field.name)
        if not dataclasses.is_dataclass(field_value) or isinstance(field_value, Rotary):
            kind, meaning = describe(hints[field.name]), meanings.get(field.name, "")
            yield Field(name, _written(field_value), kind, meaning)
        if dataclasses.is_dataclass(field_value):
            yield from fields(field_value, f"{name}.")


def flatten_values(config: Any) -> dict[str, str]:
    """Return the values of `fields` by name; a rotary variant is one value, its expression."""
    values = {field.name: field.value for field in fields(config)}
    return {name: value for name, value in values.items() if not name.startswith("model.rotary.")}


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


@functools.cache
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
