"""Frozen dataclasses written as text: `name(parameter=value,...)`, and read back.

Rotary variants are written so on command lines and in results, and so are evaluation tasks.
"""

import ast
import dataclasses
import difflib
import inspect
import keyword
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from settings.folders import class_in_file


def build(
    text: str,
    classes: Mapping[str, type],
    base: type,
    *,
    kind: str,
    given: Mapping[str, Any] | None = None,
) -> Any:
    """The object that `text` names.

    Args:
      text: `name` or `name(parameter=value, ...)`, values as Python literals; a bare word is
        taken as a string (`log_n=train`). `path/to/mine.py:Name(...)` is the class `Name` of a
        file of the user's own.
      classes: dataclasses by name.
      base: what all of them are subclasses of.
      kind: what they are, for error messages: "rotary variant".
      given: values of parameters that `text` leaves out; those a class lacks are not looked at.

    Raises:
      ValueError: for an unknown name or parameter (with the nearest valid one), a value that is
        not a literal, a missing parameter, or a value the class refuses.
    """
    malformed = (
        f"{kind} {text!r} is not of the form name(parameter=value,...); "
        "a value that is no number or plain word goes in quotes: path='a/b'"
    )
    own_file = re.match(r"\s*([^()]+\.py):(\w+)(.*)", text, re.DOTALL)
    if own_file:
        path, name, rest = own_file.groups()
        text, classes = name + rest, {name: class_in_file(Path(path), name, base)}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(malformed) from error
    call = tree if isinstance(tree, ast.Call) else ast.Call(func=tree, args=[], keywords=[])
    if not isinstance(call.func, ast.Name) or call.args:
        raise ValueError(malformed)
    name = call.func.id
    if name not in classes:
        raise ValueError(f"unknown {kind} {name!r}; {nearest(name, classes)}")
    parameters = inspect.signature(classes[name]).parameters
    arguments: dict[str, Any] = {}
    for argument in call.keywords:
        parameter = str(argument.arg)
        if parameter not in parameters:
            hint = nearest(parameter, parameters)
            raise ValueError(f"{name} has no parameter {parameter!r}; {hint}")
        if parameter in arguments:
            raise ValueError(f"{kind} {text!r} gives {parameter} twice")
        arguments[parameter] = _literal(argument.value, f"{name}({parameter}=...)")
    arguments = {n: value for n, value in (given or {}).items() if n in parameters} | arguments
    required = [n for n, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [n for n in required if n not in arguments]
    if missing:
        example = ",".join(f"{parameter}=..." for parameter in missing)
        raise ValueError(f"{name} needs {', '.join(missing)}: write {name}({example})")
    try:
        return classes[name](**arguments)
    except TypeError as error:  # a comparison of a word with a number, say
        given_values = ", ".join(f"{n}={value!r}" for n, value in arguments.items())
        raise ValueError(f"{text}: a value of the wrong kind among {given_values}") from error


def render(
    name: str, value: Any, fields: Iterable[str], given: Mapping[str, Any] | None = None
) -> str:
    """`name(parameter=value,...)` of a dataclass, in the order of `fields`.

    Parameters whose value is their default or, where there is one, the `given` one are left out.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(value)}
    defaults |= given or {}
    items = {field: getattr(value, field) for field in fields}
    parts = [f"{field}={_text(x)}" for field, x in items.items() if x != defaults[field]]
    return f"{name}({','.join(parts)})" if parts else name


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else f"{value:.17g}"
    if isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value):
        return value
    return repr(value)


def split_commas(text: str) -> list[str]:
    """Splits at the commas outside brackets: `a,f(b,c)` is `a` and `f(b,c)`."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def nearest(name: str, valid: Iterable[str]) -> str:
    """`did you mean X? (valid: ...)`, for error messages."""
    valid = sorted(map(str, valid))
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}(valid: {', '.join(valid)})"


def _literal(node: ast.expr, where: str):
    if isinstance(node, ast.Name) and node.id not in ("True", "False", "None"):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ValueError(f"{where} must be a number, string or tuple") from error
