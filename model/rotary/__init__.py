"""Rotary schedules: one file each, found by walking this folder. Pure numpy, float64.

Every method in the literature is a vector `inv_freq` (radians per token, one entry a feature
pair, 0 = the pair does not turn), a scalar on the logits and, rarely, a scale on the query.
On a command line a schedule is written as an expression, `yarn(base=1e4, factor=8)`: the file's
name, then the dataclass's fields. A pattern over layers is a list of them, `[rope(base=1e4),nope]`,
repeated from the first layer to the last.
"""

import ast
import dataclasses
import difflib
import functools
import importlib
import math
import pkgutil
from collections.abc import Sequence

import numpy as np

from model.rotary.base import Rotary

__all__ = [
    "Pattern",
    "Rotary",
    "RotaryTable",
    "expression",
    "over_layers",
    "parse",
    "parse_pattern",
    "schedules",
    "split_commas",
    "table",
]

# One schedule for every layer, or several repeated over the layers.
Pattern = Rotary | tuple[Rotary, ...]


@functools.cache
def schedules() -> dict[str, type[Rotary]]:
    """Every schedule by its expression name (the name of its file)."""
    found = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for value in vars(module).values():
            # A file's own schedule, not those it imports to build on.
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, Rotary) and value is not Rotary:
                found[module_info.name] = value
    return found


def expression(rotary: Pattern) -> str:
    """`name(parameter=value,...)`, defaults left out, or `[a,b]`; `parse_pattern` reads it back."""
    if isinstance(rotary, tuple):
        return f"[{','.join(map(expression, rotary))}]"
    name = type(rotary).__module__.rpartition(".")[2]
    # The schedule's own parameters first, then those every schedule shares.
    fields = dataclasses.fields(rotary)
    shared = [field.name for field in dataclasses.fields(Rotary)]
    ordered = sorted(fields, key=lambda field: field.name in shared)
    parts = []
    for field in ordered:
        value = getattr(rotary, field.name)
        if value != field.default:
            text = f"{value:.17g}" if isinstance(value, float) else repr(value)
            if isinstance(value, float) and float(f"{value:g}") == value:
                text = f"{value:g}"
            parts.append(f"{field.name}={text}")
    return f"{name}({','.join(parts)})" if parts else name


def parse(text: str) -> Rotary:
    """Builds the schedule that `text` names.

    Args:
      text: `name` or `name(parameter=value, ...)`, values as Python literals; a bare word is
        taken as a string (`log_n=train`).

    Raises:
      ValueError: for an unknown schedule or parameter (with the nearest valid one), a value that
        is not a literal, a missing parameter, or a value the schedule refuses.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(
            f"rotary expression {text!r} is not of the form name(parameter=value,...)"
        ) from error
    call = tree if isinstance(tree, ast.Call) else ast.Call(func=tree, args=[], keywords=[])
    if not isinstance(call.func, ast.Name) or call.args:
        raise ValueError(f"rotary expression {text!r} is not of the form name(parameter=value,...)")
    name = call.func.id
    if name not in schedules():
        raise ValueError(f"unknown rotary schedule {name!r}; {nearest(name, schedules())}")
    schedule = schedules()[name]
    fields = {field.name: field for field in dataclasses.fields(schedule)}
    arguments = {}
    for keyword in call.keywords:
        if keyword.arg not in fields:
            raise ValueError(
                f"{name} has no parameter {keyword.arg!r}; {nearest(str(keyword.arg), fields)}"
            )
        if keyword.arg in arguments:
            raise ValueError(f"rotary expression {text!r} gives {keyword.arg} twice")
        arguments[keyword.arg] = _literal(keyword.value, f"{name}({keyword.arg}=...)")
    missing = [
        field.name
        for field in fields.values()
        if field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
        and field.name not in arguments
    ]
    if missing:
        example = ",".join(f"{parameter}=..." for parameter in missing)
        raise ValueError(f"{name} needs {', '.join(missing)}: write {name}({example})")
    try:
        return schedule(**arguments)
    except TypeError as error:
        raise ValueError(f"{text}: {error}") from error


def parse_pattern(text: str) -> Pattern:
    """Builds one schedule, or the tuple that `[a,b]` names; raises ValueError as `parse` does."""
    text = text.strip()
    if not text.startswith("["):
        return parse(text)
    if not text.endswith("]"):
        raise ValueError(f"rotary pattern {text!r} lacks its closing bracket")
    return tuple(parse(part) for part in split_commas(text[1:-1]))


def over_layers(pattern, num_layers: int) -> tuple:
    """A value for each layer: one for all, or a tuple repeated from the first layer on.

    Raises:
      ValueError: if the tuple is empty or longer than there are layers.
    """
    values = pattern if isinstance(pattern, tuple) else (pattern,)
    if not 1 <= len(values) <= num_layers:
        raise ValueError(f"a pattern of {len(values)} does not fit num_layers={num_layers}")
    return tuple(values[layer % len(values)] for layer in range(num_layers))


def split_commas(text: str) -> list[str]:
    """Splits at the commas outside brackets: `a,f(b,c)` is `a` and `f(b,c)`."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _literal(node: ast.expr, where: str):
    if isinstance(node, ast.Name) and node.id not in ("True", "False", "None"):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ValueError(f"{where} must be a number, string or tuple") from error


def nearest(name: str, valid) -> str:
    """`did you mean X? (valid: ...)`, for error messages."""
    valid = sorted(valid)
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}(valid: {', '.join(valid)})"


@dataclasses.dataclass(frozen=True)
class RotaryTable:
    """What a model reads of its schedules: one row a layer.

    Attributes:
      inv_freq: float64 `[L, R]`, radians per token.
      logit_scale: float64 `[L]`.
      resting_logit_scale: float64 `[L]`, the same for MLA's features that never turn.
      query_floor, query_slope: float64 `[L]`. A query at position p is multiplied by
        max(query_floor, query_slope * ln(p + 1)): (1, 0) where log-n scaling is off.
    """

    inv_freq: np.ndarray
    logit_scale: np.ndarray
    resting_logit_scale: np.ndarray
    query_floor: np.ndarray
    query_slope: np.ndarray


def table(
    layers: Sequence[Rotary], head_dim: int, context_length: int, row_length: int | None = None
) -> RotaryTable:
    """The table of a model whose layer l has schedule `layers[l]`.

    Args:
      layers: one schedule a layer.
      head_dim: features of a head, even.
      context_length: trained context in tokens; log-n scaling is relative to it.
      row_length: tokens of the row it is for, where that is not the trained context; only dynamic
        schedules look at it.
    """
    layers = [rotary.at_length(row_length or context_length) for rotary in layers]
    slopes = {"off": 0.0, "train": 1 / math.log(context_length)}
    slopes["extrapolate"] = slopes["train"]
    return RotaryTable(
        inv_freq=np.stack([rotary.inv_freq(head_dim) for rotary in layers]),
        logit_scale=np.array([rotary.logit_scale for rotary in layers]),
        resting_logit_scale=np.array([rotary.resting_logit_scale for rotary in layers]),
        query_floor=np.array([0.0 if rotary.log_n == "train" else 1.0 for rotary in layers]),
        query_slope=np.array([slopes[rotary.log_n] for rotary in layers]),
    )
