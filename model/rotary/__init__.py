"""Rotary schedules: one file each, found by walking this folder. Pure numpy, float64.

Every method in the literature is a vector `inv_freq` (radians per token, one entry a feature
pair, 0 = the pair does not turn), a scalar on the logits and, rarely, a scale on the query.
On a command line a schedule is written as an expression, `yarn(base=1e4, factor=8)`: the file's
name, then the dataclass's fields. A pattern over layers is a list of them, `[rope(base=1e4),nope]`,
repeated from the first layer to the last.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.rotary.base import Rotary
from settings import expressions
from settings.expressions import split_commas
from settings.folders import classes_in

__all__ = [
    "Pattern",
    "Rotary",
    "RotaryTable",
    "expression",
    "inherited",
    "over_layers",
    "parse",
    "parse_pattern",
    "schedules",
    "table",
]

# One schedule for every layer, or several repeated over the layers.
Pattern = Rotary | tuple[Rotary, ...]


@functools.cache
def schedules() -> dict[str, type[Rotary]]:
    """Every schedule by its expression name (the name of its file)."""
    return classes_in(sys.modules[__name__], Rotary)


def expression(rotary: Pattern, given: Mapping[str, Any] | None = None) -> str:
    """`name(parameter=value,...)`, or `[a,b]`; `parse_pattern` reads it back.

    Parameters whose value is their default (or the `given` one) are left out.
    """
    if isinstance(rotary, tuple):
        return f"[{','.join(expression(each, given) for each in rotary)}]"
    # The schedule's own parameters first, then those every schedule shares.
    names = [field.name for field in dataclasses.fields(rotary)]
    shared = [field.name for field in dataclasses.fields(Rotary)]
    ordered = sorted(names, key=lambda name: name in shared)
    name = type(rotary).__module__.rpartition(".")[2]
    return expressions.render(name, rotary, ordered, given)


def parse(text: str, given: Mapping[str, Any] | None = None) -> Rotary:
    """Builds the schedule that `text` names; see `settings.expressions.build`."""
    return expressions.build(text, schedules(), Rotary, kind="rotary schedule", given=given)


def parse_pattern(text: str, given: Mapping[str, Any] | None = None) -> Pattern:
    """Builds one schedule, or the tuple that `[a,b]` names; raises ValueError as `parse` does."""
    text = text.strip()
    if not text.startswith("["):
        return parse(text, given)
    if not text.endswith("]"):
        raise ValueError(f"rotary pattern {text!r} lacks its closing bracket")
    return tuple(parse(part, given) for part in split_commas(text[1:-1]))


def inherited(trained: Pattern, context_length: int) -> dict[str, Any]:
    """Parameters that a schedule takes over from the one a model was trained with.

    As `given` of `parse_pattern` and `expression` it makes `dynamic_yarn` a whole schedule for
    every member of a sweep over bases, and one label for all of them.

    Args:
      trained: the schedule of training. From one that differs by layers only the length is taken.
      context_length: of training, tokens.
    """
    own = {} if isinstance(trained, tuple) else dict(vars(trained))
    return {"original_context_length": context_length} | own


def over_layers(pattern, num_layers: int) -> tuple:
    """A value for each layer: one for all, or a tuple repeated from the first layer on.

    Raises:
      ValueError: if the tuple is empty or longer than there are layers.
    """
    values = pattern if isinstance(pattern, tuple) else (pattern,)
    if not 1 <= len(values) <= num_layers:
        raise ValueError(f"a pattern of {len(values)} does not fit num_layers={num_layers}")
    return tuple(values[layer % len(values)] for layer in range(num_layers))


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
