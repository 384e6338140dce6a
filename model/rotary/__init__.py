"""Rotary variants: one file each, found by walking this folder. Pure numpy, float64.

Every method in the literature is a vector `inv_freq` (radians per token, one entry a feature
pair, 0 = the pair is unrotated), a scalar on the logits and, rarely, a scale on the query.
On a command line a variant is written as an expression, `yarn(base=1e4, factor=8)`: the file's
name, then the dataclass's fields. A pattern over layers is a list of them, `[rope(base=1e4),nope]`,
repeated from the first layer to the last; a list within it is a pattern over the key/value heads
of its layer, `[[rope(base=10),rope(base=1e4)]]`, repeated from the first head to the last.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from model.rotary.base import Rotary
from model.rotary.recorded import Recorded
from settings import expressions
from settings.expressions import split_commas, unbalanced
from settings.folders import classes_in, name_of
from settings.messages import quoted

__all__ = [
    "HeadSizes",
    "Pattern",
    "Rotary",
    "RotaryTable",
    "expression",
    "heads_of",
    "inherited",
    "label",
    "parse",
    "parse_pattern",
    "recorded",
    "repeated",
    "table",
    "variants",
]

# One variant for every layer, or several repeated over the layers; of a layer, one for every
# key/value head, or several repeated over those.
Pattern = Rotary | tuple[Rotary | tuple[Rotary, ...], ...]


@functools.cache
def variants() -> dict[str, type[Rotary]]:
    """Every variant by its expression name (the name of its file)."""
    return classes_in(sys.modules[__name__], Rotary)


def expression(rotary: Pattern, given: Mapping[str, Any] | None = None) -> str:
    """`name(parameter=value,...)`, or `[a,b]`; `parse_pattern` reads it back.

    Parameters whose value is their default (or the `given` one) are left out.
    """
    if isinstance(rotary, tuple):
        return f"[{','.join(expression(each, given) for each in rotary)}]"
    # The variant's own parameters first, then those every variant shares.
    names = [field.name for field in dataclasses.fields(rotary)]
    shared = [field.name for field in dataclasses.fields(Rotary)]
    ordered = sorted(names, key=lambda name: name in shared)
    return expressions.render(name_of(type(rotary)), rotary, ordered, given)


def label(rotary: Pattern) -> str:
    """As `expression`, for people: a variant of the user's own file is called what they wrote."""
    if isinstance(rotary, tuple):
        return f"[{','.join(map(label, rotary))}]"
    return rotary.name if isinstance(rotary, Recorded) else expression(rotary)


def parse(text: str, given: Mapping[str, Any] | None = None) -> Rotary:
    """Builds the variant that `text` names; see `settings.expressions.build`."""
    return expressions.build(text, variants(), Rotary, kind="rotary variant", given=given)


def parse_pattern(text: str, given: Mapping[str, Any] | None = None) -> Pattern:
    """Builds one variant, or the pattern that a list names; arguments and errors as `parse`."""
    return _parse_pattern(text, given, levels=2)


def _parse_pattern(text: str, given: Mapping[str, Any] | None, levels: int) -> Any:
    text = text.strip()
    if not text.startswith("["):
        return parse(text, given)
    if wrong := unbalanced(text):
        raise ValueError(f"rotary pattern {wrong}")
    if not text.endswith("]") or not levels:
        raise ValueError(
            f"rotary pattern {quoted(text)} is not of the form [variant,[variant,variant]]: a list "
            "of layers, and of the heads of one"
        )
    return tuple(_parse_pattern(part, given, levels - 1) for part in split_commas(text[1:-1]))


def inherited(trained: Pattern, context_length: int) -> dict[str, Any]:
    """Parameters that a variant takes over from the one a model was trained with.

    As `given` of `parse_pattern` and `expression` it makes `dynamic_yarn` a whole variant for
    every member of a sweep over bases, and one label for all of them.

    Args:
      trained: the variant of training. From one that differs by layers only the length is taken.
      context_length: of training, tokens.
    """
    own = {} if isinstance(trained, tuple) else dict(vars(trained))
    return {"original_context_length": context_length} | own


def recorded(pattern: Pattern, head_dim: int) -> Pattern:
    """`pattern` with the frequencies of variants from outside this folder in their place.

    Raises:
      ValueError: as `Recorded.of`.
    """
    if isinstance(pattern, tuple):
        return tuple(recorded(each, head_dim) for each in pattern)  # pyright: ignore
    if type(pattern).__module__.startswith(f"{__name__}."):
        return pattern
    return Recorded.of(pattern, expression(pattern), head_dim)


def repeated(pattern: Any, count: int, counted: str) -> tuple:
    """`count` values: one for all, or a tuple repeated from the first on.

    Raises:
      ValueError: if the tuple is empty or longer than `count`; `counted` says of what.
    """
    values = pattern if isinstance(pattern, tuple) else (pattern,)
    if not 1 <= len(values) <= count:
        raise ValueError(f"a pattern of {len(values)} does not fit {counted}={count}")
    return tuple(values[index % len(values)] for index in range(count))


def heads_of(pattern: Pattern) -> list[Rotary]:
    """The variants of a pattern, each once, layer by layer and head by head."""
    layers = pattern if isinstance(pattern, tuple) else (pattern,)
    heads = [head for layer in layers for head in (layer if isinstance(layer, tuple) else (layer,))]
    return list(dict.fromkeys(heads))


@dataclasses.dataclass(frozen=True)
class RotaryTable:
    """What a model reads of its variants: for each layer one row a key/value head.

    K is the number of key/value heads, or 1 where all heads of every layer are alike.

    Attributes:
      inv_freq: float64 `[L, K, R]`, radians per token, of the whole head: the features that
        variants see, then zeros for those that are never rotated (MLA's).
      logit_scale: float64 `[L, K]`.
      unrotated_logit_scale: float64 `[L, K]`, of features that do not turn (also MLA's).
      query_floor, query_slope: float64 `[L, K]`. A query at position p is multiplied by
        max(query_floor, query_slope * ln(p + 1)): (1, 0) where log-n scaling is off.
    """

    inv_freq: np.ndarray
    logit_scale: np.ndarray
    unrotated_logit_scale: np.ndarray
    query_floor: np.ndarray
    query_slope: np.ndarray


class HeadSizes(NamedTuple):
    """Sizes of attention, as far as rotation goes.

    Attributes:
      num_layers, num_kv_heads: what a pattern is repeated over.
      head_dim: features of a head that variants see, even.
      num_unrotated: further features of a head, which none does (MLA's).
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_unrotated: int = 0


def table(
    pattern: Pattern, sizes: HeadSizes, context_length: int, row_length: int | None = None
) -> RotaryTable:
    """The table of a model.

    Args:
      pattern: the variants, repeated over layers and heads.
      sizes: of the model.
      context_length: trained context in tokens; log-n scaling is relative to it.
      row_length: tokens of the row it is for, where that is not the trained context; only dynamic
        variants look at it.

    Raises:
      ValueError: if a pattern is longer than there are layers or heads, or a variant does not fit.
    """
    layers = [
        repeated(layer, sizes.num_kv_heads, "num_kv_heads")
        for layer in repeated(pattern, sizes.num_layers, "num_layers")
    ]
    # One row for all heads where they are alike: programs are then as if heads were never told
    # apart, and a cosine is computed once.
    if all(len(set(heads)) == 1 for heads in layers):
        layers = [heads[:1] for heads in layers]
    unrotated = np.zeros(sizes.num_unrotated // 2)
    slopes = {"off": 0.0, "train": 1 / math.log(context_length)}
    slopes["extrapolate"] = slopes["train"]

    def of_heads(value: Callable[[Rotary], Any]) -> np.ndarray:
        lengthened = (
            [head.at_length(row_length or context_length) for head in heads] for heads in layers
        )
        return np.array([[value(head) for head in heads] for heads in lengthened])

    return RotaryTable(
        inv_freq=of_heads(lambda head: np.append(head.inv_freq(sizes.head_dim), unrotated)),
        logit_scale=of_heads(lambda head: head.logit_scale),
        unrotated_logit_scale=of_heads(lambda head: head.unrotated_logit_scale),
        query_floor=of_heads(lambda head: 0.0 if head.log_n == "train" else 1.0),
        query_slope=of_heads(lambda head: slopes[head.log_n]),
    )
