"""Rotation of each layer of a published model, from its config.json alone.

Every style is read: `rope_theta`, `rope_scaling`, `rope_parameters`, and those nested by layer
type. Rules that a config.json leaves to the code of its model type are in `model_types.toml`.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from model.rotary.base import HfHead
from model.rotary.rope_parameters import Scales, compute_frequencies, read_rope
from utils.checks import Bounds, Count, Layers, problem
from utils.limits import MOST_FEATURES
from utils.messages import one_line

TYPES = tomllib.loads(Path(__file__).with_name("model_types.toml").read_text(encoding="utf-8"))

_ALIASES = {"kimi_k2": "deepseek_v3"}
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config")  # of multimodal models
_SIZES = {  # older names, of GPT-2's style
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head",),
    "hidden_size": ("n_embd",),
    "max_position_embeddings": ("n_positions", "max_sequence_length"),
}
# Types whose config.json says everything that their code reads.
_LIKE_LLAMA = ("llama", "qwen2", "qwen2_moe", "qwen3_moe", "olmo", "olmo2", "olmoe", "granite")
_LIKE_LLAMA += ("granitemoe", "granitemoehybrid", "falcon", "starcoder2", "arcee", "internlm3")
_LIKE_LLAMA += ("hunyuan_v1_dense", "dots1", "helium", "solar_open", "phimoe", "cwm")
_WITHOUT_HEADS = ("linear_attention", "mamba", "mamba2", "conv", "recurrent")


class LayerGroup(NamedTuple):
    """Layers of one model that rotate alike.

    Attributes:
      layers: numbers of the layers, from 0.
      kind: `full_attention`, `sliding_attention`, ...
      rope: rope parameters in the style of transformers 5; empty without rotation.
      inv_freq: float64 `[R]`, radians per token, of the pairs that pass through the rotation; 0 for
        a pair that does not turn.
      head: sizes and context that `rope` refers to.
      head_dim: features of a query and a key, unrotated ones included.
      scales: factors of q·k besides 1 / sqrt(head_dim).
      window: tokens that a query attends to; None: all before it.
      query_scale: formula of a factor that depends on the query's position; "" without one.
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
      known: whether the type is Llama or has rules in `model_types.toml`.
    """

    model_type: str
    context: int
    groups: tuple[LayerGroup, ...]
    num_without: int
    known: bool


_BOUNDS = {
    "num_hidden_layers": Layers,
    # Twice as far, and 64 times, positions are still compared.
    "max_position_embeddings": Annotated[int, Bounds(at_least=1, at_most=2**24)],
}


class _Config:
    """A config.json with the rules of its model type."""

    def __init__(self, values: Mapping[str, Any]):
        for name in _TEXT_CONFIGS:
            if isinstance(values.get(name), Mapping):
                values = values[name]
        self.values = dict(values)
        self.model_type = one_line(str(values.get("model_type")), 40)
        for name in (self.model_type, f"{self.model_type}_text"):
            self.rules: dict[str, Any] = TYPES.get(_ALIASES.get(name, name), {})
            if self.rules:
                break
        self.known = bool(self.rules) or self.model_type in _LIKE_LLAMA

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number."""
        names = (name, *_SIZES.get(name, ()))
        value = next((v for v in map(self.values.get, names) if v is not None), default)
        if value is None:
            raise ValueError(f"config.json lacks {name!r}")
        if wrong := problem(value, _BOUNDS.get(name, Count)):
            raise ValueError(f"config.json: {name} must be {wrong}")
        return int(value)


def read_layers(config: Mapping[str, Any]) -> PublishedModel:
    """Return the model that a config.json describes.

    Raises:
      ValueError: naming the key that is missing or not allowed.
    """
    try:
        return _read_layers(_Config(config))
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        reason = one_line(str(error), 100)
        raise ValueError(f"config.json: a value has the wrong type ({reason})") from error


def _read_layers(source: _Config) -> PublishedModel:
    context = source.size("max_position_embeddings", 2048)
    kinds = _read_kinds(source)
    numbers: dict[tuple[str, bool], list[int]] = {}
    for number, (kind, rotates) in enumerate(zip(kinds, _rotating(source, kinds), strict=True)):
        if kind not in _WITHOUT_HEADS:
            numbers.setdefault((kind, rotates), []).append(number)
    groups = tuple(
        _read_group(source, context, kind, rotates, tuple(layers))
        for (kind, rotates), layers in numbers.items()
    )
    num_without = len(kinds) - sum(len(group.layers) for group in groups)
    return PublishedModel(source.model_type, context, groups, num_without, source.known)


def _read_kinds(source: _Config) -> list[str]:
    """Return the kind of each layer."""
    values, rules = source.values, source.rules
    count = source.size("num_hidden_layers")
    names = {"attention": "full_attention", "0": "linear_attention", "1": "full_attention"}
    for name in ("layer_types", "layers_block_type", "attn_type_list"):
        kinds = values.get(name)
        if isinstance(kinds, list) and len(kinds) >= count:
            texts = [one_line(str(kind), 40) for kind in kinds[:count]]
            return [names.get(text, text) for text in texts]
    ratios = values.get("compress_ratios")  # DeepSeek V4: 0 is a layer with a window only
    if isinstance(ratios, list):
        return ["full_attention" if ratio else "sliding_attention" for ratio in ratios[:count]]
    linear = values.get("linear_attn_config")  # Kimi Linear counts layers from 1
    if isinstance(linear, Mapping):
        full = set(linear.get("full_attn_layers", ()))
        return ["full_attention" if n + 1 in full else "linear_attention" for n in range(count)]
    if source.model_type in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        first = values.get("max_window_layers", 28) if values.get("use_sliding_window") else count
        return ["full_attention" if n < first else "sliding_attention" for n in range(count)]
    pattern = list(rules.get("kinds", ["full_attention"]))
    every = values.get(rules.get("every", ""))
    if isinstance(every, str):  # EXAONE 4: "LLLG"
        every = len(every)
    if every:
        pattern = pattern[:1] * min(int(every) - 1, count) + pattern[-1:]
    if len(set(pattern)) == 1 and "sliding_attention" in pattern and not _window(source):
        pattern = ["full_attention"]
    return [pattern[n % len(pattern)] for n in range(count)]


def _rotating(source: _Config, kinds: list[str]) -> list[bool]:
    """Return whether each layer rotates."""
    values = source.values
    flags = values.get("no_rope_layers")  # despite its name, 1 means that the layer rotates
    if isinstance(flags, list) and len(flags) >= len(kinds):
        return [bool(flag) for flag in flags[: len(kinds)]]
    if values.get("position_embedding_type") == "nope":
        return [False] * len(kinds)
    unrotated = set(source.rules.get("unrotated", ()))
    if source.model_type == "exaone4" and values.get("sliding_window", 1) is None:
        unrotated = set()
    return [kind not in unrotated for kind in kinds]


def _window(source: _Config) -> int | None:
    name = "sliding_window" if "sliding_window" in source.values else "sliding_window_size"
    window = source.values.get(name, source.rules.get("window")) or None
    if wrong := problem(window, Count | None):
        raise ValueError(f"config.json: {name} must be {wrong}")
    return window


def _read_group(
    source: _Config, context: int, kind: str, rotates: bool, layers: tuple[int, ...]
) -> LayerGroup:
    mla = source.rules.get("mla")
    head_dim = _head_dim(source, kind)
    rope_dim = head_dim
    if "kv_lora_rank" in source.values or mla:
        sizes = [source.size(name, (mla or {}).get(name)) for name in _MLA_SIZES]
        head_dim, rope_dim = sum(sizes), sizes[1]
    if head_dim > MOST_FEATURES:
        raise ValueError(f"config.json: a head has {head_dim:,} features ({MOST_FEATURES:,} fit)")
    head = HfHead(rope_dim, context, mla is not None)
    window = {
        "sliding_attention": _window(source),
        "chunked_attention": source.values.get("attention_chunk_size", 8192),
    }.get(kind)
    rope, inv_freq, scales = {}, np.zeros(0), Scales(1.0, 1.0)
    if rotates:
        rope = _read_rope(source, kind, head)
        inv_freq, scales = compute_frequencies(rope, head, context)
    query_scale = _query_scale(source, rotates, rope)
    return LayerGroup(layers, kind, rope, inv_freq, head, head_dim, scales, window, query_scale)


_MLA_SIZES = ("qk_nope_head_dim", "qk_rope_head_dim")


def _head_dim(source: _Config, kind: str) -> int:
    if kind == "full_attention" and source.model_type.startswith("gemma4"):
        return source.size("global_head_dim", 512)
    if "head_dim" in source.rules or source.values.get("head_dim") is not None:
        return source.size("head_dim", source.rules.get("head_dim"))
    return source.size("hidden_size") // source.size("num_attention_heads")


def _read_rope(source: _Config, kind: str, head: HfHead) -> dict[str, Any]:
    """Return the rope parameters of one kind of layer."""
    values, rules = dict(source.values), source.rules
    local = kind == "sliding_attention" and "local_theta" in rules
    label = kind
    if source.model_type.startswith("deepseek_v4"):
        label, local_key = ("main", "rope_theta") if local else ("compress", "")
        if not local and "compress_rope_theta" in values:
            values["rope_theta"] = values["compress_rope_theta"]
    else:
        local_key = rules.get("local_key", "")
    nested = (
        isinstance(values.get("rope_parameters"), Mapping) and label in values["rope_parameters"]
    )
    if not nested:
        if local:
            values["rope_theta"] = values.get(local_key, rules["local_theta"])
        if local or kind not in rules.get("scaled", [kind]):
            values["rope_scaling"] = values["rope_parameters"] = None
    if "rotary_emb_base" in values:  # GPT-NeoX
        values["rope_theta"] = values["rotary_emb_base"]
    partial, values["partial_rotary_factor"] = _partial(source, head), None
    if nested or "rope_theta" in (values.get("rope_parameters") or {}):
        values["rope_theta"] = None  # a default of the code, or the other style's
    elif values.get("rope_theta") is None:
        values["rope_theta"] = rules.get("theta", 10_000.0)
    rope = read_rope(values, label)
    if rope["rope_type"] == "mrope":  # text has one position on all axes
        rope["rope_type"] = "default"
    if head.mla or (rope["rope_type"] == "default" and partial is None):
        rope.pop("partial_rotary_factor", None)
    elif partial is not None:
        rope.setdefault("partial_rotary_factor", partial)
    if source.model_type == "deepseek_v4" and rope["rope_type"] == "yarn":
        rope.setdefault("attention_factor", 1.0)
    return rope


def _partial(source: _Config, head: HfHead) -> float | None:
    """Return the share of rotated features; None for types that rotate all of them."""
    values, rules = source.values, source.rules
    if values.get("rotary_dim"):
        return values["rotary_dim"] / head.head_dim
    parameters = values.get("rope_parameters") or {}
    share = values.get("partial_rotary_factor", values.get("rotary_pct"))
    share = parameters.get("partial_rotary_factor", share)
    if source.known and "partial" not in rules:
        return share if values.get("rope_scaling") else None
    return rules.get("partial") if share is None else share


def _query_scale(source: _Config, rotates: bool, rope: Mapping[str, Any]) -> str:
    """Return the formula of a factor of queries that depends on their position."""
    values = source.values
    tuned = source.model_type.startswith("llama4") and values.get("attn_temperature_tuning", True)
    if tuned and not rotates:
        scale, floor = values.get("attn_scale", 0.1), values.get("floor_scale", 8192)
        return f"1 + {scale:g} ln(1 + floor((p + 1) / {floor}))"
    beta = rope.get("llama_4_scaling_beta")
    if beta:
        return f"1 + {beta:g} ln(1 + floor(p / {rope.get('original_max_position_embeddings')}))"
    return ""
