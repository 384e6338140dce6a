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
import sys
from collections.abc import Mapping
from typing import Any

from ropewalk.model.rotary.base import Rotary
from ropewalk.model.rotary.recorded import Recorded
from ropewalk.utils import expressions
from ropewalk.utils.expressions import split_commas, unbalanced
from ropewalk.utils.messages import quoted
from ropewalk.utils.plugins import classes_in, name_of

__all__ = [
    "Pattern",
    "Rotary",
    "expand_pattern",
    "expression",
    "inherited_parameters",
    "label",
    "parse",
    "parse_pattern",
    "record_frequencies",
    "repeat_pattern",
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
    return expressions.build(text, variants(), Rotary, kind="rotary variant", defaults=defaults)


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


def expand_pattern(pattern: Pattern, num_layers: int, num_heads: int) -> list[tuple[Rotary, ...]]:
    """Return the variant of each key/value head of each layer.

    If all heads of every layer are alike, each layer has one variant: programs then compute each
    cosine once.

    Raises:
      ValueError: if the pattern is longer than there are layers or heads.
    """
    layers = [
        repeat_pattern(layer, num_heads, "num_kv_heads")
        for layer in repeat_pattern(pattern, num_layers, "num_layers")
    ]
    alike = all(len(set(heads)) == 1 for heads in layers)
    return [heads[:1] for heads in layers] if alike else layers


def unique_variants(pattern: Pattern) -> list[Rotary]:
    """Return the distinct variants of a pattern, ordered by layer and head."""
    layers = pattern if isinstance(pattern, tuple) else (pattern,)
    heads = [head for layer in layers for head in (layer if isinstance(layer, tuple) else (layer,))]
    return list(dict.fromkeys(heads))
