"""Frozen dataclasses as text: `name(parameter=value,...)`.

Command lines and results write rotary variants and evaluation tasks so.
"""

import ast
import dataclasses
import inspect
import keyword
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ropewalk.utils.messages import nearest, one_line, quoted
from ropewalk.utils.plugins import allow, class_in_file

# A class in a file of code outside the repository: path, class, and what follows.
_OWN_FILE = re.compile(r"([^()]+\.py):(\w+)(.*)", re.DOTALL)


def build(
    text: str,
    classes: Mapping[str, type],
    base: type,
    *,
    kind: str,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Build the object that `text` names.

    Args:
      text: `name` or `name(parameter=value, ...)`, values as Python literals; a bare word is
        a string (`log_n=train`). `path/to/mine.py:Name(...)` is the class `Name` in a user's file.
      classes: dataclasses by name.
      base: their base class.
      kind: their kind in error messages, such as "rotary variant".
      defaults: values of parameters that `text` leaves out; the class may lack some of them.

    Raises:
      ValueError: for an unknown name or parameter (with the nearest valid one), a value that is
        not a literal, a missing parameter, or a value the class refuses.
    """
    malformed = (
        f"{kind} {quoted(text)} is not of the form name(parameter=value,...); "
        "a value that is no number or plain word goes in quotes: path='a/b'"
    )
    if text.endswith(".py"):
        malformed = f"{kind} {quoted(text)} is a file; name its class: {text}:NAME"
    if own_file := _OWN_FILE.match(text.strip()):
        path, name, rest = own_file.groups()
        text, classes = name + rest, {name: class_in_file(Path(path), name, base)}
    try:
        tree = _tree(text)
    except ValueError as error:
        raise ValueError(f"{kind} {wrong}" if (wrong := unbalanced(text)) else malformed) from error
    call = tree if isinstance(tree, ast.Call) else ast.Call(func=tree, args=[], keywords=[])
    if not isinstance(call.func, ast.Name) or call.args:
        raise ValueError(malformed)
    name = call.func.id
    if name not in classes:
        raise ValueError(f"unknown {kind} {quoted(name)}; {nearest(name, classes)}")
    parameters = inspect.signature(classes[name]).parameters
    arguments: dict[str, Any] = {}
    for argument in call.keywords:
        parameter = str(argument.arg or "**")
        if parameter not in parameters:
            hint = nearest(parameter, parameters)
            raise ValueError(f"{name} has no parameter {quoted(parameter)}; {hint}")
        if parameter in arguments:
            raise ValueError(f"{kind} {quoted(text)} gives {parameter} twice")
        word = argument.value
        is_word = isinstance(word, ast.Name)  # True, False and None are constants
        where = f"{name}({parameter}=...)"
        arguments[parameter] = word.id if is_word else _value(word, where)
    arguments = {n: value for n, value in (defaults or {}).items() if n in parameters} | arguments
    required = [n for n, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [n for n in required if n not in arguments]
    if missing:
        example = ",".join(f"{parameter}=..." for parameter in missing)
        raise ValueError(f"{name} needs {', '.join(missing)}: write {name}({example})")
    try:
        return classes[name](**arguments)
    except ValueError as error:
        raise ValueError(one_line(str(error))) from error
    except (TypeError, ArithmeticError) as error:  # a comparison of a word with a number, say
        given_values = ", ".join(f"{n}={quoted(value, 20)}" for n, value in arguments.items())
        raise ValueError(
            one_line(f"{quoted(text)}: a value of the wrong kind among {given_values}")
        ) from error


def allow_files(text: str) -> None:
    """Permit the files that the expressions of a command line name to be executed.

    Args:
      text: an expression, a comma list of them, or lists in brackets. A malformed text permits
        nothing; its parser reports the error.
    """
    try:
        parts = [part.strip() for part in split_commas(text)]
    except ValueError:
        return
    for part in map(unquote, parts):
        if part[:1] + part[-1:] in ("[]", "()"):
            allow_files(part[1:-1])
        elif own_file := _OWN_FILE.match(part):
            allow(own_file[1])


def render(
    name: str, value: Any, fields: Iterable[str], defaults: Mapping[str, Any] | None = None
) -> str:
    """Return `name(parameter=value,...)` of a dataclass, in the order of `fields`.

    Parameters at their value in `defaults`, or else at that of the class, are left out.
    """
    omitted = {field.name: field.default for field in dataclasses.fields(value)}
    omitted |= defaults or {}
    items = {field: getattr(value, field) for field in fields}
    parts = [f"{field}={_text(x)}" for field, x in items.items() if x != omitted[field]]
    return f"{name}({','.join(parts)})" if parts else name


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else f"{value:.17g}"
    if isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value):
        return value
    return repr(value)


def split_commas(text: str) -> list[str]:
    """Split at the commas outside brackets: `a,f(b,c)` is `a` and `f(b,c)`.

    Commas do not split within quotes, `'a,b',c`, or after a backslash, `a\\,b,c`; `unquote` removes
    both.

    Raises:
      ValueError: if a bracket that contains a comma is not closed.
    """
    parts, start, depth = [], 0, 0
    for end, character in enumerate(_without_quotes(text)):
        depth = max(0, depth + (character in _CLOSING) - (character in _CLOSING.values()))
        if character == "," and not depth:
            parts.append(text[start:end])
            start = end + 1
    if depth and "," in text[start:]:
        raise ValueError(unbalanced(text))
    return [*parts, text[start:]]


def unquote(text: str) -> str:
    """Return a part of a list without the quotes around it, and without backslashes of commas."""
    if len(text) > 1 and text[0] in "\"'" and text[0] == text[-1]:
        return text[1:-1]
    return text.replace("\\,", ",")


def unbalanced(text: str) -> str:
    """Describe the first bracket of `text` without a counterpart; empty if there is none."""
    is_open = []
    for character in _without_quotes(text):
        if character in _CLOSING:
            is_open.append(_CLOSING[character])
        elif character in _CLOSING.values() and (not is_open or is_open.pop() != character):
            return f"{quoted(text)} has a {character!r} that closes no bracket"
    return f"{quoted(text)} lacks its closing {is_open[-1]!r}" if is_open else ""


_CLOSING = {"(": ")", "[": "]", "{": "}"}
# A quote within a word is an apostrophe.
_QUOTED = re.compile(r"""(?<!\w)(["']).*?\1|\\,""", re.DOTALL)


def _without_quotes(text: str) -> str:
    """Return `text` with blanks in place of parts in quotes and commas after a backslash."""
    return _QUOTED.sub(lambda match: " " * len(match[0]), text)


def literal(text: str) -> Any:
    """Return the value of a Python literal; raise ValueError for any other text."""
    return _value(_tree(text), quoted(text))


def _tree(text: str) -> ast.expr:
    """Return the syntax tree of an expression; raise ValueError if Python cannot parse it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in strings
        try:
            return ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{quoted(text)} is no expression") from error


def _value(node: ast.expr, where: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{where} must be a number, string or tuple") from error
