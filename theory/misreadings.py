"""Known misreadings of rotary settings, and the first position at which each one matters.

A misreading is an error that a public implementation made with a published config. It is listed
for a model only if it changes the model: the model has the setting, and the wrong vector differs.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from interop.layers import LayerGroup, PublishedModel
from model.rotary.base import geometric_inv_freq
from model.rotary.rope_parameters import compute_frequencies

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


Row = tuple[str, int, str]


def _of_group(model: PublishedModel, group: LayerGroup, tolerance: float) -> Iterator[Row]:
    other_groups = [other for other in model.groups if other.rope and other.kind != group.kind]
    if not group.rope:
        if other_groups:
            yield "rotates layers without rotation", 1, "executorch#22043"
        return
    source = "maxtext#1774, transformers#25199, llama.cpp#2376"
    yield "pairs neighbors (2i, 2i+1) instead of (i, i+R), or the reverse", 1, source
    scale = group.scales.rotated
    if abs(scale - 1) > tolerance:
        yield "omits the temperature on the logits", 1, "vllm#46280, transformers#47435"
    if _kind(group) == "yarn" and group.rope["factor"] > 1:
        default = (0.1 * math.log(group.rope["factor"]) + 1) ** 2
        if abs(default / scale - 1) > tolerance:
            yield "uses the default temperature of YaRN", 1, "llama.cpp#24162"
    for name, source, compute in _VECTORS:
        try:
            actual = compute(model, group)
        except (KeyError, ValueError):  # the rotation has no such parameter
            continue
        if actual is None:
            continue
        size = max(actual.size, group.inv_freq.size)
        expected, actual = (np.pad(v, (0, size - v.size)) for v in (group.inv_freq, actual))
        first = first_difference(expected, actual, tolerance)
        if first is not None:
            yield name, first, source
    for other in other_groups:
        if other.inv_freq.shape == group.inv_freq.shape:
            first = first_difference(group.inv_freq, other.inv_freq, tolerance)
            if first is not None:
                yield f"uses the frequencies of {other.kind} layers", first, "maxtext#3832"
    for dtype, bits, source in (
        ("bfloat16", _BFLOAT16_BITS, "transformers#29285, TransformerEngine#1245"),
        ("float32", _FLOAT32_BITS, "transformers#29285"),
    ):
        first = first_rounding(group.inv_freq, model.context, bits, tolerance)
        if first is not None:
            yield f"multiplies positions and frequencies in {dtype}", first, source


Compute = Callable[[PublishedModel, LayerGroup], np.ndarray | None]


def _reread(group: LayerGroup, **changes) -> np.ndarray:
    """Return the vector of changed rope parameters; None removes a parameter."""
    rope = {k: v for k, v in {**group.rope, **changes}.items() if v is not None}
    return compute_frequencies(rope, group.head, group.head.context)[0]


def _kind(group: LayerGroup) -> str:
    return group.rope["rope_type"]


def _without_scaling(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    return (
        None if _kind(group) in ("default", "proportional") else _reread(group, rope_type="default")
    )


def _default_base(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    return _reread(group, rope_theta=10_000.0)


def _scaled_twice(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    return group.inv_freq / group.rope["factor"] if _kind(group) in ("yarn", "linear") else None


def _inverted_ramp(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    if _kind(group) != "yarn":
        return None
    plain = _reread(group, rope_type="default")
    return plain + plain / group.rope["factor"] - group.inv_freq


def _other_truncation(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    if _kind(group) != "yarn":
        return None
    return _reread(group, truncate=not group.rope.get("truncate", True))


def _ntk_below_the_ramp(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    factor = group.rope.get("factor", 1)
    if _kind(group) != "yarn" or factor == 1:
        return None
    plain, dim = _reread(group, rope_type="default"), 2 * group.inv_freq.size
    share = (group.inv_freq / plain - 1 / factor) / (1 - 1 / factor)  # of the unstretched series
    stretched = geometric_inv_freq(group.rope["rope_theta"] * factor ** (dim / (dim - 2)), dim)
    return share * stretched + (1 - share) * plain / factor


def _factor_from_contexts(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    original = group.rope.get("original_max_position_embeddings")
    if _kind(group) != "yarn" or not original:
        return None
    return _reread(group, factor=max(model.context / original, 1.0), attention_factor=1.0)


def _llama_31(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    if _kind(group) != "llama3":
        return None
    constants = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return _reread(group, factor=8.0, original_max_position_embeddings=8192, **constants)


def _other_width(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    """Return the vector with the exponent over the other width: the head, or the rotated part."""
    share, head = group.rope.get("partial_rotary_factor", 1.0), group.head
    if share >= 1:
        return None
    base, rotary_dim = group.rope["rope_theta"], int(head.head_dim * share)
    if _kind(group) == "proportional":
        return geometric_inv_freq(base, rotary_dim)
    if _kind(group) != "default":
        return None
    return geometric_inv_freq(base, head.head_dim)[: rotary_dim // 2]


def _full_rotation(model: PublishedModel, group: LayerGroup) -> np.ndarray | None:
    if group.rope.get("partial_rotary_factor", 1.0) >= 1:
        return None
    return _reread(group, partial_rotary_factor=1.0)


_VECTORS: tuple[tuple[str, str, Compute], ...] = (
    ("ignores rope_scaling", "levanter, torchtitan", _without_scaling),
    ("ignores the base and uses 10000", "SpecForge#265", _default_base),
    ("divides positions and frequencies by the factor", "LLMs-from-scratch#939", _scaled_twice),
    ("inverts the ramp of YaRN", "litgpt (litgpt/model.py)", _inverted_ramp),
    ("rounds the ramp of YaRN, or does not", "transformers truncate, gpt-oss", _other_truncation),
    ("stretches the base of the pairs that YaRN keeps", "aprender#2161", _ntk_below_the_ramp),
    ("takes the factor from the ratio of contexts", "transformers#38224", _factor_from_contexts),
    ("uses the constants of Llama 3.1", "maxtext (embeddings.py)", _llama_31),
    ("runs the exponent over the other width", "transformers#48652", _other_width),
    ("rotates all features", "transformers#39847", _full_rotation),
)
