"""Rotation of each layer of a published model, from its config alone.

`interop.measured_layers` asks transformers, whose code says what a config means; `imported_layers`
reads the families that `interop.importing` imports.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ropewalk.interop.hf_config import parse_config
from ropewalk.model.config import NO_WINDOW
from ropewalk.model.rotary.base import HfHead
from ropewalk.model.rotary.rope_parameters import Scales, compute_frequencies, read_rope
from ropewalk.utils.limits import MOST_FEATURES
from ropewalk.utils.messages import quoted

_PRECISION = 1e-6  # of frequencies that were measured in float32, relative


class Layer(NamedTuple):
    """One layer with attention.

    Attributes:
      number: of the layer, from 0.
      kind: `full_attention`, `sliding_attention`, ...
      inv_freq: float64 `[R]`, radians per token, of the pairs that pass through the rotation; empty
        without one, 0 for a pair that does not turn.
      head_dim: features of a query and a key, unrotated ones included.
      scale: factor of q·k besides 1 / sqrt(head_dim).
      rotated_scale: further factor of the features that pass through the rotation.
      window: tokens that a query attends to; None: all before it.
      query_scale: description of a factor that depends on the query's position; "" without one.
    """

    number: int
    kind: str
    inv_freq: np.ndarray
    head_dim: int
    scale: float
    rotated_scale: float
    window: int | None
    query_scale: str = ""


class LayerGroup(NamedTuple):
    """Layers of one model that rotate alike.

    Attributes:
      layers: numbers of the layers, from 0.
      kind, inv_freq, head_dim, window, query_scale: as in `Layer`.
      rope: rope parameters in the style of transformers 5; empty without rotation.
      head: sizes and context that `rope` refers to.
      scales: factors of q·k besides 1 / sqrt(head_dim).
    """

    layers: tuple[int, ...]
    kind: str
    rope: dict[str, Any]
    inv_freq: np.ndarray
    head: HfHead
    head_dim: int
    scales: Scales
    window: int | None
    query_scale: str

    @property
    def all_inv_freq(self) -> np.ndarray:
        """Frequencies of all pairs of a head, float64 `[head_dim // 2]`."""
        return np.pad(self.inv_freq, (0, self.head_dim // 2 - self.inv_freq.size))


class PublishedModel(NamedTuple):
    """A model of a config.json.

    Attributes:
      model_type: its type; that of the text model where there are several.
      context: max_position_embeddings, tokens.
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
        layers.append(
            Layer(
                number=number,
                kind="full_attention" if window == NO_WINDOW else "sliding_attention",
                inv_freq=inv_freq[: size if inv_freq.any() else 0],
                head_dim=D,
                scale=scale * D**0.5 / model.logit_divisor,
                rotated_scale=rotated_scale / scale,
                window=None if window == NO_WINDOW else window,
            )
        )
    by_window = parsed.architecture.ropes == "by window"
    kinds = dict.fromkeys(layer.kind if by_window else None for layer in layers)
    ropes = [read_rope(parsed.keys, kind) for kind in kinds]
    model_type = parsed.architecture.model_type
    return PublishedModel(model_type, context, group_layers(layers, ropes, context), 0)


def group_layers(
    layers: Iterable[Layer], ropes: list[dict[str, Any]], context: int
) -> tuple[LayerGroup, ...]:
    """Return groups of layers that rotate alike.

    Args:
      layers: the layers with attention.
      ropes: all rope parameters that the config has.
      context: max_position_embeddings, tokens.
    """
    groups: dict[tuple, LayerGroup] = {}
    for layer in layers:
        _check(layer)
        key = (*layer[1:2], layer.inv_freq.tobytes(), *layer[3:])
        group = groups.get(key)
        if group is None:
            groups[key] = _make_group(layer, ropes, context)
        else:
            groups[key] = group._replace(layers=(*group.layers, layer.number))
    return tuple(groups.values())


def _check(layer: Layer) -> None:
    """Raise ValueError for frequencies that no model can have."""
    inv_freq, scales = layer.inv_freq, (layer.scale, layer.rotated_scale)
    if layer.head_dim > MOST_FEATURES:
        raise ValueError(
            f"config.json: a head has {layer.head_dim:,} features (allowed: {MOST_FEATURES:,})"
        )
    if not (np.isfinite(inv_freq).all() and np.isfinite(scales).all()):
        raise ValueError("config.json: its rope parameters give frequencies that are not finite")
    if inv_freq.size and not 0 < inv_freq.max() <= np.pi:
        raise ValueError(
            f"config.json: its rope parameters turn a pair by {inv_freq.max():g} radians per token "
            "(allowed: above 0, at most pi); check rope_theta and factor"
        )


def _make_group(layer: Layer, ropes: list[dict[str, Any]], context: int) -> LayerGroup:
    rope, inv_freq, rotated = {}, layer.inv_freq, layer.rotated_scale
    head = HfHead(2 * inv_freq.size, context)
    for rope, head in _candidates(layer, ropes, context) if inv_freq.size else ():
        try:
            exact, scales = compute_frequencies(rope, head, context)
        except ValueError:
            continue
        if exact.shape == inv_freq.shape and np.allclose(exact, inv_freq, _PRECISION, 1e-12):
            inv_freq = exact
            if abs(scales.rotated / rotated - 1) < _PRECISION:
                rotated = scales.rotated
            break
    else:
        rope = _describe(layer, ropes) if inv_freq.size else {}
    scales = Scales(layer.scale * rotated, layer.scale)
    return LayerGroup(
        (layer.number,), layer.kind, rope, inv_freq, head, layer.head_dim, scales, layer.window,
        layer.query_scale,
    )  # fmt: skip


def _candidates(
    layer: Layer, ropes: list[dict[str, Any]], context: int
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


def _describe(layer: Layer, ropes: list[dict[str, Any]]) -> dict[str, Any]:
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
    return {"rope_theta": None, **rope, "rope_type": kind}
