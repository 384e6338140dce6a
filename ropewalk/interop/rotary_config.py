"""Rotary variants and the rope parameters of a Hugging Face config.json.

A variant with a `rope_type` of its own converts itself (`Rotary.to_hf`, `Rotary.from_hf`); any
other static vector is a `longrope`, with one factor per pair. Neither direction trusts the variant:
`model.rotary.rope_parameters` computes what transformers reads, and this must equal the variant's
vector.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ropewalk.model.rotary import variant_of_rope_type
from ropewalk.model.rotary.base import Base, HfHead, Rotary, geometric_inv_freq
from ropewalk.model.rotary.recorded import Recorded
from ropewalk.model.rotary.rope_parameters import Scales, compute_frequencies
from ropewalk.utils.checks import problem

UNROTATED = 1e30  # factor of an unrotated pair: 1e-30 radians per token is 0 in float32


def make_rope_parameters(rotary: Rotary, head: HfHead, *, partial: bool = False) -> dict[str, Any]:
    """Return rope parameters for a static variant.

    Args:
      rotary: the variant of one layer.
      head: entries of the model's config.json.
      partial: True if the class rotates the first features of a head only (Phi-3). Other classes
        rotate all features, the unrotated ones by a negligible frequency.

    Raises:
      ValueError: if no parameters have the variant's frequencies and scales.
    """
    inv_freq = rotary.inv_freq(head.head_dim)
    fraction = rotary.rotary_dim(head.head_dim) / head.head_dim if partial else 1.0
    expected = inv_freq[: int(head.head_dim * fraction) // 2]
    has_unrotated = head.mla or len(expected) < len(inv_freq)
    scales = _scales(rotary, has_unrotated)
    for rope in _candidates(rotary, head, expected, scales):
        if partial:
            rope["partial_rotary_factor"] = fraction
        if rope["rope_type"] == "proportional":
            continue  # version 4 does not know it
        rope = {name: _as_json(name, value) for name, value in rope.items()}
        # Some types change beyond the trained context, so a long row is compared too.
        read = [compute_frequencies(rope, head, length) for length in (1, 64 * head.context)]
        if all(_equal(*pair, expected, scales) for pair in read):
            return rope
    if inv_freq.min(initial=0) < 0:
        raise ValueError(
            f"{type(rotary).__name__} has a negative frequency, which no class of transformers "
            "has; train with its absolute value"
        )
    raise ValueError(
        f"{type(rotary).__name__} cannot be written as rope_type longrope of this class; choose "
        "another --architecture"
    )


def _scales(rotary: Rotary, has_unrotated: bool) -> Scales:
    return Scales(rotary.logit_scale, rotary.unrotated_logit_scale if has_unrotated else 1.0)


def _as_json(name: str, value: Any) -> Any:
    """Convert a value to the type that version 4 expects: it warns of integers and floats."""
    if isinstance(value, str | list):
        return value
    return int(value) if name == "original_max_position_embeddings" else float(value)


def _equal(
    inv_freq: np.ndarray, scales: Scales, expected: np.ndarray, expected_scales: Scales
) -> bool:
    # The absolute tolerance is for unrotated pairs.
    return (
        inv_freq.shape == expected.shape
        and np.allclose(inv_freq, expected, rtol=1e-12, atol=1e-25)
        and np.allclose(scales, expected_scales, rtol=1e-12)
    )


def _candidates(
    rotary: Rotary, head: HfHead, inv_freq: np.ndarray, scales: Scales
) -> Iterator[dict[str, Any]]:
    """Yield rope parameters that may represent a variant, best first."""
    if parameters := rotary.to_hf(head):
        yield parameters
    if len(inv_freq) > 1 and inv_freq[1] > 0:
        # The base of a geometric series, whichever variant computed it.
        with np.errstate(over="ignore"):
            fitted = float((inv_freq[0] / inv_freq[1]) ** len(inv_freq))
        if not problem(fitted, Base):
            yield {"rope_type": "default", "rope_theta": fitted}
    yield _as_longrope(inv_freq, getattr(rotary, "base", None) or 10_000.0, head, scales)


def _as_longrope(inv_freq: np.ndarray, base: float, head: HfHead, scales: Scales) -> dict[str, Any]:
    series = geometric_inv_freq(base, 2 * len(inv_freq))
    factors = np.divide(series, inv_freq, out=np.full_like(series, UNROTATED), where=inv_freq > 0)
    attention_factor = math.sqrt(scales.rotated / scales.unrotated)
    rope: dict[str, Any] = {
        "rope_type": "longrope",
        "rope_theta": base,
        "short_factor": factors.tolist(),
        "long_factor": factors.tolist(),
        # With these values no reader changes lists or derives a temperature.
        "factor": 1.0,
        "original_max_position_embeddings": head.context,
        "attention_factor": attention_factor,
    }
    if scales.unrotated != 1:
        # DeepSeek multiplies all logits by (0.1 mscale_all_dim ln(factor) + 1)^2.
        rope |= {"factor": math.e, "mscale_all_dim": 10 * (math.sqrt(scales.unrotated) - 1)}
    if attention_factor != 1:
        # vLLM reads these and not attention_factor.
        rope |= {"short_mscale": attention_factor, "long_mscale": attention_factor}
    return rope


def add_version_4_keys(rope: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a config.json that describe `rope` to transformers 5 and 4."""
    old = {name: value for name, value in rope.items() if name not in ("rope_theta", "rope_type")}
    keys: dict[str, Any] = {"rope_parameters": rope, "rope_theta": rope["rope_theta"]}
    partial = old.pop("partial_rotary_factor", None)
    if partial is not None:
        keys["partial_rotary_factor"] = partial
    scaling = {"rope_type": rope["rope_type"], "type": rope["rope_type"], **old}
    return keys | {"rope_scaling": scaling if rope["rope_type"] != "default" else None}


def read_variant(rope: Mapping[str, Any], head: HfHead, length: int, name: str) -> Rotary:
    """Return the variant that rotates as transformers does with `rope`.

    Args:
      rope: rope parameters, from `model.rotary.rope_parameters.read_rope`.
      head: other entries of the config.json.
      length: trained context, tokens; it selects one of the two lists of `longrope`.
      name: label of a vector that none of our variants computes.

    Raises:
      ValueError: if a parameter is missing or not allowed.
    """
    inv_freq, scales = compute_frequencies(rope, head, length)
    has_unrotated = head.mla or 2 * len(inv_freq) < head.head_dim
    inv_freq = np.where(np.abs(inv_freq) < 1e-25, 0, inv_freq)
    recorded = Recorded(
        name=name,
        values=tuple(inv_freq.tolist()),
        rotary_fraction=2 * len(inv_freq) / head.head_dim,
        scale=scales.rotated,
        unrotated_scale=scales.unrotated if has_unrotated else scales.rotated,
    )
    variant_class = variant_of_rope_type(rope["rope_type"])
    rotary = variant_class and variant_class.from_hf(rope, head, length)
    if rotary:
        row = rotary.at_length(length)
        actual = row.inv_freq(head.head_dim), _scales(row, has_unrotated)
        if _equal(*actual, recorded.inv_freq(head.head_dim), scales):
            return rotary
    return recorded
