"""Known misreadings of rotary settings, and the first position at which each one matters.

A misreading is an error that a public implementation made with a published config. It is listed
for a model only if it changes the model: the model has the setting, and the wrong vector differs.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from ropewalk.interop.layers import LayerGroup, PublishedModel
from ropewalk.model.rotary.rope_parameters import compute_frequencies
from ropewalk.utils.checks import Bounds, problem

TOLERANCE = 0.05  # of a rotated unit vector: 2.9 degrees
_FLOAT32_BITS, _BFLOAT16_BITS = 24, 8  # of a significand


class Misreading(NamedTuple):
    """One misreading of a model.

    Attributes:
      name: description of the wrong code.
      kinds: kinds of layers that it changes, as in `LayerGroup`.
      first: first distance between two tokens, or position for roundings, at which a rotated pair
        is off by more than the tolerance.
      source: public issues of it.
    """

    name: str
    kinds: tuple[str, ...]
    first: int
    source: str


def find_misreadings(model: PublishedModel, tolerance: float = TOLERANCE) -> list[Misreading]:
    """Return the known misreadings that change a model within its context, earliest first."""
    if wrong := problem(tolerance, Annotated[float, Bounds(above=0, at_most=1)]):
        raise ValueError(f"tolerance must be {wrong}")
    rows: dict[str, Misreading] = {}
    for group in model.groups:
        for name, first, source in _of_group(model, group, tolerance):
            if first <= model.context:
                row = rows.get(name, Misreading(name, (), first, source))
                kinds = (*row.kinds, group.kind)
                rows[name] = row._replace(kinds=kinds, first=min(first, row.first))
    return sorted(rows.values(), key=lambda row: row.first)


def first_difference(expected: np.ndarray, actual: np.ndarray, tolerance: float) -> int | None:
    """Return the first distance at which two vectors rotate some pair differently.

    Args:
      expected, actual: float64 `[R]`, radians per token.
      tolerance: |exp(i m ω) - exp(i m ω')| from which a pair counts as different, below 1.
    """
    slip = np.abs(expected - actual).max(initial=0.0)
    if slip == 0:
        return None
    # |exp(i a) - 1| = 2 sin(a / 2) grows up to a = π, which the first step does not pass unless
    # the frequencies themselves differ by more than that.
    return max(1, math.ceil(2 * math.asin(tolerance / 2) / slip))


def first_rounding(inv_freq: np.ndarray, limit: int, bits: int, tolerance: float) -> int | None:
    """Return the first position whose angle, rounded to `bits`, is off by more than a tolerance.

    The position, the frequency and their product are each rounded to `bits` significant bits.

    Args:
      inv_freq: float64 `[R]`, radians per token.
      limit: positions below it are tested.
      bits: of the significand: 24 for float32, 8 for bfloat16.
      tolerance: error in radians.
    """
    # Three roundings, each by at most 2^-bits of the value: smaller angles are within tolerance.
    smallest = tolerance * 2.0**bits / 3
    for start in range(int(smallest / max(inv_freq.max(initial=0.0), 1e-300)), limit, 2**14):
        positions = np.arange(start, min(start + 2**14, limit), dtype=np.float64)[:, None]
        pairs = inv_freq[inv_freq * positions[-1] >= smallest]
        rounded = _round(_round(positions, bits) * _round(pairs, bits), bits)
        wrong = (np.abs(rounded - positions * pairs) > tolerance).any(axis=1)
        if wrong.any():
            return start + int(np.argmax(wrong))
    return None


def _round(x: np.ndarray, bits: int) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)


def _of_group(
    model: PublishedModel, group: LayerGroup, tolerance: float
) -> Iterator[tuple[str, int, str]]:
    """Yield the name, first position and source of every misreading of a group of layers."""
    other_groups = [other for other in model.groups if other.rope and other.kind != group.kind]
    if not group.rope:
        if any(other.rope for other in model.groups):
            yield "rotates layers without rotation", 1, "executorch#22043"
        return
    source = "maxtext#1774, transformers#25199, llama.cpp#2376"
    yield "pairs neighbors (2i, 2i+1) instead of (i, i+R), or the reverse", 1, source
    if abs(group.scales.rotated - 1) > tolerance:
        yield "omits the temperature on the logits", 1, "vllm#46280, transformers#47435"
    if "attn_factor" in group.rope:
        yield "applies attn_factor, which transformers ignores", 1, "vllm, DeepSeek-R1#684"
    for name, source, actual in _wrong_vectors(group, other_groups):
        size = max(actual.size, group.inv_freq.size)
        expected, actual = (np.pad(v, (0, size - v.size)) for v in (group.inv_freq, actual))
        if first := first_difference(expected, actual, tolerance):
            yield name, first, source
    for dtype, bits, source in (
        ("bfloat16", _BFLOAT16_BITS, "transformers#29285, TransformerEngine#1245"),
        ("float32", _FLOAT32_BITS, "transformers#29285"),
    ):
        if first := first_rounding(group.inv_freq, model.context, bits, tolerance):
            yield f"multiplies positions and frequencies in {dtype}", first, source


def _wrong_vectors(
    group: LayerGroup, other_groups: Sequence[LayerGroup]
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the name and source of a misreading, and the frequencies that it computes, `[R]`."""

    kind, has_base = group.rope["rope_type"], bool(group.rope.get("rope_theta"))
    is_scaled = has_base and kind not in ("default", "proportional")
    is_partial = group.rope.get("partial_rotary_factor", 1.0) < 1
    for applies, name, source, change in (
        (is_scaled, "ignores rope_scaling", "levanter, torchtitan", {"rope_type": "default"}),
        (has_base, "ignores the base and uses 10000", "SpecForge#265", {"rope_theta": 10_000.0}),
        (is_partial, "rotates all features", "transformers#39847", {"partial_rotary_factor": 1.0}),
    ):
        if applies:
            # Some are refused: lists of factors (Phi-4) do not fit all features.
            with contextlib.suppress(ValueError):
                rope, head = group.rope | change, group.head
                yield name, source, compute_frequencies(rope, head, head.context)[0]
    if kind in ("yarn", "linear") and (factor := group.rope.get("factor")):
        twice = group.inv_freq / factor
        yield "divides positions and frequencies by the factor", "LLMs-from-scratch#939", twice
    for other in other_groups:
        if other.inv_freq.shape == group.inv_freq.shape:
            name = f"uses the frequencies of {other.kind} layers"
            yield name, "maxtext#3832", other.inv_freq
