"""Rotary variants: every file of this folder defines one. Pure numpy, float64.

Every method in the literature is a vector `inv_freq` (radians per token, one entry per feature
pair, 0 = the pair is unrotated), a scalar on the logits, and in rare cases a scale on the query.
On a command line a variant is an expression, `yarn(base=1e4, factor=8)`: the name of the file, then
fields of the dataclass. A pattern over layers is a list of variants, `[rope(base=1e4),nope]`, that
repeats from the first layer on. A list within it is a pattern over the key/value heads of its
layer, `[[rope(base=10),rope(base=1e4)]]`, that repeats from the first head on.
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
from utils import expressions
from utils.expressions import split_commas, unbalanced
from utils.messages import quoted
from utils.plugins import classes_in, name_of

__all__ = [
    "HeadSizes",
    "Pattern",
    "Rotary",
    "RotaryTable",
    "expression",
    "inherited_parameters",
    "label",
    "parse",
    "parse_pattern",
    "record_frequencies",
    "repeat_pattern",
    "table",
    "unique_variants",
    "variant_of_rope_type",
    "variants",
]

# One variant for all layers, or several that repeat over layers. In one layer: one variant for all
# key/value heads, or several that repeat over heads.
Pattern = Rotary | tuple[Rotary | tuple[Rotary, ...], ...]


@functools.cache
def variants() -> dict[str, type[Rotary]]:
    """Return every variant by its expression name (the name of its file)."""
    return classes_in(sys.modules[__name__], Rotary)


def variant_of_rope_type(rope_type: str) -> type[Rotary] | None:
    """Return the variant that transformers calls `rope_type`; None if there is none."""
    # An inherited type does not count: `method1` is a `default`, but `rope` is its namesake.
    named = (cls for cls in variants().values() if vars(cls).get("rope_type") == rope_type)
    return next(named, None)


def expression(rotary: Pattern, defaults: Mapping[str, Any] | None = None) -> str:
    """Write a pattern as `name(parameter=value,...)` or `[a,b]`; `parse_pattern` inverts it.

    Parameters equal to their default, or to their value in `defaults`, are left out.
    """
    if isinstance(rotary, tuple):
        return f"[{','.join(expression(part, defaults) for part in rotary)}]"
    # Parameters of this variant come before those that all variants share.
    names = [field.name for field in dataclasses.fields(rotary)]
    shared = [field.name for field in dataclasses.fields(Rotary)]
    ordered = sorted(names, key=lambda name: name in shared)
    return expressions.render(name_of(type(rotary)), rotary, ordered, defaults)


def label(rotary: Pattern) -> str:
    """Return a pattern's label: its `expression`, or the name of a variant from a user's file."""
    if isinstance(rotary, tuple):
        return f"[{','.join(map(label, rotary))}]"
    return rotary.name if isinstance(rotary, Recorded) else expression(rotary)


def parse(text: str, defaults: Mapping[str, Any] | None = None) -> Rotary:
    """Build the variant that `text` describes; see `utils.expressions.build`."""
    return expressions.build(text, variants(), Rotary, kind="rotary variant", given=defaults)


def parse_pattern(text: str, defaults: Mapping[str, Any] | None = None) -> Pattern:
    """Build one variant, or a pattern from a list; see `parse` for arguments and errors."""
    return _parse_pattern(text, defaults, levels=2)


def _parse_pattern(text: str, defaults: Mapping[str, Any] | None, levels: int) -> Any:
    text = text.strip()
    if not text.startswith("["):
        return parse(text, defaults)
    if problem := unbalanced(text):
        raise ValueError(f"rotary pattern {problem}")
    if not text.endswith("]") or not levels:
        raise ValueError(
            f"rotary pattern {quoted(text)} is not of the form [variant,[variant,variant]]: a list "
            "of layers, and of the heads of one"
        )
    return tuple(_parse_pattern(part, defaults, levels - 1) for part in split_commas(text[1:-1]))


def inherited_parameters(trained: Pattern, context_length: int) -> dict[str, Any]:
    """Return the parameters that a variant inherits from the trained one.

    As `defaults` of `parse_pattern` and `expression` they complete `dynamic_yarn` for every member
    of a sweep over bases, and give all members the same label.

    Args:
      trained: the trained variant. A pattern passes on only the length.
      context_length: trained context, tokens.
    """
    parameters = {} if isinstance(trained, tuple) else dict(vars(trained))
    return {"original_context_length": context_length} | parameters


def record_frequencies(pattern: Pattern, head_dim: int) -> Pattern:
    """Replace the variants of `pattern` that are not from this folder by their frequencies.

    Raises:
      ValueError: see `Recorded.from_variant`.
    """
    if isinstance(pattern, tuple):
        return tuple(record_frequencies(part, head_dim) for part in pattern)  # pyright: ignore
    if type(pattern).__module__.startswith(f"{__name__}."):
        return pattern
    return Recorded.from_variant(pattern, expression(pattern), head_dim)


def repeat_pattern(pattern: Any, count: int, counted: str) -> tuple:
    """Return `count` values: copies of one value, or a tuple that repeats from the first on.

    Raises:
      ValueError: if the tuple is empty or longer than `count`; the message names `counted`.
    """
    values = pattern if isinstance(pattern, tuple) else (pattern,)
    if not 1 <= len(values) <= count:
        raise ValueError(f"a pattern of {len(values)} does not fit {counted}={count}")
    return tuple(values[index % len(values)] for index in range(count))


def unique_variants(pattern: Pattern) -> list[Rotary]:
    """Return the distinct variants of a pattern, ordered by layer and head."""
    layers = pattern if isinstance(pattern, tuple) else (pattern,)
    heads = [head for layer in layers for head in (layer if isinstance(layer, tuple) else (layer,))]
    return list(dict.fromkeys(heads))


@dataclasses.dataclass(frozen=True)
class RotaryTable:
    """The numbers of a model's variants: one row for each layer and key/value head.

    K is the number of key/value heads, or 1 where all heads of every layer are alike.

    Attributes:
      inv_freq: float64 `[L, K, R]`, radians per token, of all pairs of the head: first those that
        variants apply to, then zeros for those that never rotate (MLA's).
      logit_scale: float64 `[L, K]`.
      unrotated_logit_scale: float64 `[L, K]`, for features that do not rotate (also MLA's).
      query_floor, query_slope: float64 `[L, K]`. A query at position p is multiplied by
        max(query_floor, query_slope * ln(p + 1)): (1, 0) where log-n scaling is off.
    """

    inv_freq: np.ndarray
    logit_scale: np.ndarray
    unrotated_logit_scale: np.ndarray
    query_floor: np.ndarray
    query_slope: np.ndarray


class HeadSizes(NamedTuple):
    """Sizes of attention that rotation depends on.

    Attributes:
      num_layers, num_kv_heads: numbers of layers and heads that a pattern repeats over.
      head_dim: features of a head that variants apply to, even.
      num_unrotated: further features of a head, which no variant applies to (MLA's).
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_unrotated: int = 0


def table(
    pattern: Pattern, sizes: HeadSizes, context_length: int, row_length: int | None = None
) -> RotaryTable:
    """Return the table of a model.

    Args:
      pattern: variants, which repeat over layers and heads.
      sizes: sizes of the model.
      context_length: trained context in tokens; log-n scaling is relative to it.
      row_length: tokens of the row, which only dynamic variants read; default: `context_length`.

    Raises:
      ValueError: if a pattern is longer than there are layers or heads, or a variant does not fit.
    """
    layers = [
        repeat_pattern(layer, sizes.num_kv_heads, "num_kv_heads")
        for layer in repeat_pattern(pattern, sizes.num_layers, "num_layers")
    ]
    # One row for all heads where they are alike: programs then compute each cosine once.
    if all(len(set(heads)) == 1 for heads in layers):
        layers = [heads[:1] for heads in layers]
    unrotated = np.zeros(sizes.num_unrotated // 2)
    slopes = {"off": 0.0, "train": 1 / math.log(context_length)}
    slopes["extrapolate"] = slopes["train"]

    def compute(value: Callable[[Rotary], Any]) -> np.ndarray:
        lengthened = (
            [head.at_length(row_length or context_length) for head in heads] for heads in layers
        )
        return np.array([[value(head) for head in heads] for heads in lengthened])

    return RotaryTable(
        inv_freq=compute(lambda head: np.append(head.inv_freq(sizes.head_dim), unrotated)),
        logit_scale=compute(lambda head: head.logit_scale),
        unrotated_logit_scale=compute(lambda head: head.unrotated_logit_scale),
        query_floor=compute(lambda head: 0.0 if head.log_n == "train" else 1.0),
        query_slope=compute(lambda head: slopes[head.log_n]),
    )
