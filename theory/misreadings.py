"""Known misreadings of rotary settings, and the first distance at which each one matters.

A misreading is an error that a public implementation made with a published config. It is listed
for a model only if it changes the model: the model has the setting, and the wrong vector differs.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from interop.layers import LayerGroup, PublishedModel
from model.rotary.rope_parameters import compute_frequencies

TOLERANCE = 0.05  # of a rotated unit vector: 2.9 degrees


class Misreading(NamedTuple):
    """One misreading of a model.

    Attributes:
      name: description of the wrong code.
      kinds: kinds of layers that it changes, as in `LayerGroup`.
      first: first distance between two tokens at which a rotated pair is off by more than the
        tolerance.
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
        for name, source, actual in _misread(model, group, tolerance):
            first = 1 if actual is None else first_difference(group.inv_freq, actual, tolerance)
            if first and first <= model.context:
                row = rows.get(name, Misreading(name, (), first, source))
                kinds = (*row.kinds, group.kind)
                rows[name] = row._replace(kinds=kinds, first=min(first, row.first))
    return sorted(rows.values(), key=lambda row: row.first)


def first_difference(expected: np.ndarray, actual: np.ndarray, tolerance: float) -> int | None:
    """Return the first distance at which two vectors rotate some pair differently.

    Args:
      expected, actual: float64 `[R]`, radians per token; the shorter one is padded with zeros.
      tolerance: |exp(i m ω) - exp(i m ω')| from which a pair counts as different, below 1.
    """
    size = max(actual.size, expected.size)
    expected, actual = (np.pad(vector, (0, size - vector.size)) for vector in (expected, actual))
    slip = np.abs(expected - actual).max(initial=0.0)
    if slip == 0:
        return None
    # |exp(i a) - 1| = 2 sin(a / 2) grows up to a = π, which the first step does not pass unless
    # the frequencies themselves differ by more than that.
    return max(1, math.ceil(2 * math.asin(tolerance / 2) / slip))


def _misread(
    model: PublishedModel, group: LayerGroup, tolerance: float
) -> Iterator[tuple[str, str, np.ndarray | None]]:
    """Yield every misreading of a group of layers: its name, source and wrong frequencies, `[R]`.

    None instead of frequencies: it differs from the first token on.
    """

    def read_again(**changes: Any) -> np.ndarray:
        return compute_frequencies(group.rope | changes, group.head, group.head.context)[0]

    others = [other for other in model.groups if other.rope and other.kind != group.kind]
    if not group.rope:
        if others:
            yield "rotates layers without rotation", "executorch#22043", None
        return
    source = "maxtext#1774, transformers#25199, llama.cpp#2376"
    yield "pairs neighbors (2i, 2i+1) instead of (i, i+R), or the reverse", source, None
    if abs(group.scales.rotated - 1) > tolerance:
        yield "omits the temperature on the logits", "vllm#46280, transformers#47435", None
    kind = group.rope["rope_type"]
    if group.rope.get("rope_theta"):
        if kind not in ("default", "proportional"):
            wrong = read_again(rope_type="default")
            yield "ignores rope_scaling", "levanter, torchtitan", wrong
        wrong = read_again(rope_theta=10_000.0)
        yield "ignores the base and uses 10000", "SpecForge#265", wrong
    if kind in ("yarn", "linear"):
        twice = group.inv_freq / group.rope["factor"]
        yield "divides positions and frequencies by the factor", "LLMs-from-scratch#939", twice
    if group.rope.get("partial_rotary_factor", 1.0) < 1:
        wrong = read_again(partial_rotary_factor=1.0)
        yield "rotates all features", "transformers#39847", wrong
    for other in others:
        if other.inv_freq.shape == group.inv_freq.shape:
            yield f"uses the frequencies of {other.kind} layers", "maxtext#3832", other.inv_freq
