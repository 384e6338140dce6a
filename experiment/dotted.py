"""Typed dotted overrides: `model.rotary.base=500` applied to a config.

Reading a run needs only this module; `experiment.overrides` makes sweeps of overrides.
"""

import argparse
import contextlib
import dataclasses
import types
import typing
from collections.abc import Sequence
from typing import Any

from experiment.config import ExperimentConfig
from experiment.fields import field_names
from model import rotary as rotary_lib
from model.rotary import Rotary
from utils.checks import problem
from utils.command_line import tokens
from utils.expressions import literal, split_commas, unbalanced
from utils.messages import nearest, one_line, quoted

_LENGTHS = ("context_length", "lengths", "window")  # fields that also accept 4k


def apply(config: ExperimentConfig, overrides: Sequence[str]) -> ExperimentConfig:
    """Apply every `dotted.field=value` of `overrides` to `config`, in order.

    Values are checked against each other once, at the end of each object's changes. `seed` is the
    data's seed too, unless `data.seed` is given.

    Raises:
      ValueError: naming the override, what is wrong, and the nearest valid field.
    """
    tree: dict[str, Any] = {}
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path:
            raise ValueError(f"override {quoted(override)} is not of the form dotted.field=value")
        node = tree
        *parents, last = path.split(".")
        for parent in parents:
            child = node.setdefault(parent, {})
            # An object (model.rotary=..) may be refined afterwards (model.rotary.base).
            node = child if isinstance(child, dict) else node.setdefault(parent + ".", {})
        node[last] = text
    changed = _replace(config, tree, "", field_names(config))
    if "seed" in tree and "seed" not in tree.get("data", {}):
        # Runs that share their rows differ less than independent runs.
        data = dataclasses.replace(changed.data, seed=changed.seed)
        changed = dataclasses.replace(changed, data=data)
    return changed


def _replace(value: Any, changes: dict[str, Any], prefix: str, all_names: Sequence[str]) -> Any:
    hints = typing.get_type_hints(type(value))
    fields = {field.name for field in dataclasses.fields(value)}
    new = {}
    for key, change in changes.items():
        name = key.rstrip(".")
        where = prefix + name
        if name not in fields:
            hint = _hint_elsewhere(name, all_names) or nearest(name, fields)
            raise ValueError(f"unknown field {quoted(where)}; {hint}")
        if isinstance(change, dict):
            current = new.get(name, getattr(value, name))
            if not dataclasses.is_dataclass(current):
                raise ValueError(f"{where} has no fields of its own; write {where}=VALUE")
            new[name] = _replace(current, change, where + ".", all_names)
        else:
            new[name] = _parse(change, hints[name], where)
    try:
        return dataclasses.replace(value, **new)
    except ValueError as error:
        raise ValueError(one_line(f"{prefix.rstrip('.') or 'config'}: {error}")) from error


def _hint_elsewhere(name: str, all_names: Sequence[str]) -> str:
    """Return `did you mean X?` for a field of another object, or "" if none is called like it."""
    same = [other for other in all_names if other.rpartition(".")[2] == name]
    alike = [other for other in all_names if len(name) > 3 and name in other.rpartition(".")[2]]
    matches = same or alike
    return f"did you mean {' or '.join(map(repr, matches[:2]))}?" if matches else ""


def _parse(text: str, hint: Any, where: str) -> Any:
    """Parse `text` as a value of the type `hint`."""
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
        return tuple(_parse(item.strip(), arguments[0], where) for item in split_commas(items))
    if isinstance(hint, type) and issubclass(hint, Rotary):
        _check_single(text, where)
        try:
            return rotary_lib.parse(text)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if dataclasses.is_dataclass(hint):
        raise ValueError(f"{where} is an object; set one of its fields: {where}.FIELD=VALUE")
    value: Any = text
    if where.rpartition(".")[2] in _LENGTHS and text[-1:].lower() in ("k", "m"):
        with contextlib.suppress(argparse.ArgumentTypeError):
            value = tokens(text)
    elif hint in (int, float, bool) or not all(isinstance(word, str) for word in arguments):
        with contextlib.suppress(ValueError):  # the check below rejects words
            value = literal(text.title() if hint is bool else text)
    if wrong := problem(value, hint):
        _check_single(text, where)
        raise ValueError(f"{where}={one_line(text, 60)} must be {wrong}")
    return hint(value) if hint in (int, float) else value


def _check_single(text: str, where: str) -> None:
    """Raise ValueError for a list of values, which would make members of a sweep."""
    try:
        several = len(split_commas(text)) > 1
    except ValueError:  # an open bracket, which the parser of the value reports
        return
    if several:
        raise ValueError(
            f"{where}={one_line(text, 60)} lists several values; python sweep.py trains a member "
            "of each"
        )
