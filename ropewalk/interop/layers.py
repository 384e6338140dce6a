"""Rotation of each layer of a published model, from its config alone.

`interop.measured_layers` asks transformers, whose code says what a config means; `imported_layers`
reads the families that `interop.importing` imports.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ropewalk.interop.hf_config import parse_config
from ropewalk.model.config import NO_WINDOW
from ropewalk.model.rotary.base import HfHead
from ropewalk.model.rotary.rope_parameters import Scales, compute_frequencies, read_rope
from ropewalk.utils.messages import quoted

# Of frequencies that were measured in float32, relative; the second compares them with another's.
_PRECISION, _TOLERANCE = 1e-6, 3e-6


class LayerGroup(NamedTuple):
    """One layer with attention, or several of one model that rotate alike.

    Attributes:
      layers: numbers of the layers, from 0.
      kind: `full_attention`, `sliding_attention`, ...
      inv_freq: float64 `[R]`, radians per token, of the pairs that pass through the rotation; empty
        without one, 0 for a pair that does not turn.
      head_dim: features of a query and a key, unrotated ones included.
      scales: factors of q·k besides 1 / sqrt(head_dim).
      window: tokens that a query attends to; None: all before it.
      query_scale: description of a factor that depends on the query's position; "" without one.
      rope: rope parameters in the style of transformers 5, from `group_layers`; empty without
        rotation.
      head: sizes and context that `rope` refers to.
    """

    layers: tuple[int, ...]
    kind: str
    inv_freq: np.ndarray
    head_dim: int
    scales: Scales
    window: int | None
    query_scale: str = ""
    rope: dict[str, Any] = {}  # noqa: RUF012 - never changed
    head: HfHead = HfHead(0, 0)

    @property
    def all_inv_freq(self) -> np.ndarray:
        """Frequencies of all pairs of a head, float64 `[head_dim // 2]`."""
        return np.pad(self.inv_freq, (0, self.head_dim // 2 - self.inv_freq.size))


class PublishedModel(NamedTuple):
    """A model of a config.json.

    Attributes:
      model_type: its type; that of the text model where there are several.
      context: max_position_embeddings, or model_max_length where that is longer; tokens.
      groups: its layers with attention.
      num_without: number of further layers, which have no attention heads.
    """

    model_type: str
    context: int
    groups: tuple[LayerGroup, ...]
    num_without: int


def imported_layers(config: Mapping[str, Any]) -> PublishedModel:
    """Return the layers of a model that can be imported.

    Raises:
      ValueError: if it cannot.
    """
    parsed = parse_config(config, "config.json")
    model, D = parsed.model, parsed.model.head_dim
    context = parsed.longest
    table = model.position_table(parsed.context, context)
    layers = []
    for number, (inv_freq, window) in enumerate(
        zip(table.inv_freq[:, 0], table.window.tolist(), strict=True)
    ):
        scale = float(table.unrotated_logit_scale[number, 0])
        rotated_scale = float(table.logit_scale[number, 0])
        size = model.rope_head_dim // 2
        if parsed.layout == "partial":
            size = np.count_nonzero(inv_freq)
        if 2 * size == D:
            scale = 1.0
        unrotated = scale * D**0.5 / model.logit_divisor
        layers.append(
            LayerGroup(
                layers=(number,),
                kind="full_attention" if window == NO_WINDOW else "sliding_attention",
                inv_freq=inv_freq[: size if inv_freq.any() else 0],
                head_dim=D,
                scales=Scales(unrotated * (rotated_scale / scale), unrotated),
                window=None if window == NO_WINDOW else window,
            )
        )
    by_window = parsed.architecture.ropes == "by window"
    kinds = dict.fromkeys(layer.kind if by_window else None for layer in layers)
    ropes = [read_rope(parsed.keys, kind) for kind in kinds]
    model_type = parsed.architecture.model_type
    return PublishedModel(model_type, context, group_layers(layers, ropes, context), 0)


def find_difference(theirs: PublishedModel, ours: PublishedModel) -> str:
    """Describe the first layer with another rotation or window than in our import; "" if none."""
    groups = {number: group for group in ours.groups for number in group.layers}
    longest = 2 * ours.context  # a window beyond that is not measured
    for group in theirs.groups:
        is_partial = 2 * group.inv_freq.size < group.head_dim
        for number in group.layers:
            expected = groups[number]
            pairs = {
                "rotation": [x.inv_freq[x.inv_freq > 1e-20] for x in (group, expected)],
                # The second is that of unrotated features.
                "scale": [x.scales[: 1 + is_partial] for x in (group, expected)],
                "window": [min(x.window or longest, longest) for x in (group, expected)],
            }
            for name, (a, b) in pairs.items():
                if np.shape(a) != np.shape(b) or not np.allclose(a, b, _TOLERANCE, 1e-25):
                    return f"layer {number}: transformers' {name} differs"
    return ""


def group_layers(
    layers: Iterable[LayerGroup],
    ropes: list[dict[str, Any]],
    context: int,
    length: int | None = None,
) -> tuple[LayerGroup, ...]:
    """Return groups of layers that rotate alike.

    Args:
      layers: the layers with attention.
      ropes: all rope parameters that the config has.
      context: max_position_embeddings, tokens.
      length: tokens of the rows; None: `context`.

    Raises:
      ValueError: for frequencies that no model can have, or those of a short row in a longer one.
    """
    groups: dict[tuple, LayerGroup] = {}
    for layer in layers:
        _check(layer)
        key = (layer.kind, layer.inv_freq.tobytes(), *layer[3:7])
        first = groups.setdefault(key, layer)
        # Layers with two attention modules (LongCat) call both alike.
        groups[key] = first._replace(layers=tuple(dict.fromkeys(first.layers + layer.layers)))
    return tuple(_explain(group, ropes, context, length or context) for group in groups.values())


def _check(layer: LayerGroup) -> None:
    """Raise ValueError for frequencies that no model can have."""
    inv_freq, scales = layer.inv_freq, layer.scales
    if not (np.isfinite(inv_freq).all() and np.isfinite(scales).all()):
        raise ValueError("config.json: its rope parameters give frequencies that are not finite")
    if inv_freq.size and not 0 < inv_freq.max() <= np.pi:
        raise ValueError(
            f"config.json: its rope parameters turn a pair by {inv_freq.max():g} radians per token "
            "(allowed: above 0, at most pi); check rope_theta and factor"
        )


def _explain(
    group: LayerGroup, ropes: list[dict[str, Any]], context: int, length: int
) -> LayerGroup:
    """Add the rope parameters of layers, which have frequencies and scales in full precision."""
    inv_freq, scales = group.inv_freq, group.scales
    candidates = list(_candidates(group, ropes, context)) if inv_freq.size else []
    for row, (rope, head) in itertools.product((length, 1), candidates):
        try:
            exact, computed = compute_frequencies(rope, head, row)
        except ValueError:
            continue
        if exact.shape == inv_freq.shape and np.allclose(exact, inv_freq, _PRECISION, 1e-12):
            if row != length:  # PhiMoE in transformers 5.23
                raise ValueError(
                    f"config.json: rows of {length:,} tokens use long_factor, but the class of "
                    "this model_type in transformers uses short_factor at every length"
                )
            rotated = scales.unrotated * computed.rotated
            if abs(rotated / scales.rotated - 1) < _PRECISION:
                scales = scales._replace(rotated=rotated)
            return group._replace(inv_freq=exact, scales=scales, rope=rope, head=head)
    rope = _describe(group, ropes) if inv_freq.size else {}
    return group._replace(rope=rope, head=HfHead(2 * inv_freq.size, context))


def _candidates(
    layer: LayerGroup, ropes: list[dict[str, Any]], context: int
) -> Iterable[tuple[dict[str, Any], HfHead]]:
    """Yield rope parameters that may explain a layer's frequencies, and what they refer to."""
    plain = [
        {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
        | {"rope_type": "default"}
        for rope in ropes
    ]
    for rope in [*ropes, *plain]:
        if "partial_rotary_factor" in rope:
            yield rope, HfHead(layer.head_dim, context)
        rescaled = {name: x for name, x in rope.items() if name != "partial_rotary_factor"}
        yield rescaled, HfHead(2 * layer.inv_freq.size, context)


def _describe(layer: LayerGroup, ropes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rope parameters of frequencies that no formula of ours computes.

    They are plain RoPE's if the frequencies are a geometric series, with its base.
    """
    inv_freq = layer.inv_freq
    if inv_freq.min() > 0 and inv_freq.size > 1:
        exponents = np.arange(inv_freq.size) / inv_freq.size
        slope = np.sum(exponents * -np.log(inv_freq)) / np.sum(exponents**2)
        if np.allclose(-np.log(inv_freq), slope * exponents, atol=4 * _PRECISION):
            return {"rope_type": "default", "rope_theta": float(np.exp(slope))}
    rope = ropes[0] if ropes else {}
    kind = quoted(rope.get("rope_type", "unknown"), 40).strip("'")
    return {**rope, "rope_theta": None, "rope_type": kind}
