"""A published config.json as a `ModelConfig`: each key is read, or refused by its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiment.records import parse_json
from interop import rotary_config
from interop.architectures import ARCHITECTURES, LATENT_EPSILON, Architecture
from interop.rotary_config import Head
from interop.weights import Layout
from model.config import MlaConfig, ModelConfig
from model.rotary import Pattern
from model.rotary.nope import Nope
from utils.checks import Count, problem
from utils.messages import nearest, quoted

_ALIKE = {"deepseek_v2": "deepseek_v3"}  # another router of experts: dense layers are the same
_DEFAULT_WINDOW = {"mistral": 4096, "ministral": 4096}  # of a config that does not say
_LAYERS = "num_hidden_layers"
# What would change the logits and is no part of our model, with the value that has none of it.
_ABSENT: dict[str, Any] = {
    "attention_bias": False,
    "mlp_bias": False,
    "quantization_config": None,
    "num_local_experts": None,
    "num_mtp_layers": None,
}
# Keys that change the logits of some class of transformers, and the types that read them. The
# others ignore them, and so does the import, which names them.
_READ_BY: dict[str, tuple[str, ...]] = {
    "attention_bias": ("llama", "qwen3", "smollm3", "deepseek_v2", "deepseek_v3", "mellum"),
    "mlp_bias": ("llama", "smollm3", "deepseek_v2"),
    "partial_rotary_factor": ("phi3",),
    "sliding_window": ("mistral", "ministral", "qwen2", "qwen3", "smollm3", "mellum", "phi3"),
    "layer_types": ("ministral", "qwen2", "qwen3", "smollm3", "mellum"),
    "no_rope_layers": ("smollm3",),
    # Cohere, Gemma, Granite, MiniCPM, OLMo and their kin.
    "logit_scale": (),
    "logits_scaling": (),
    "attention_multiplier": (),
    "embedding_multiplier": (),
    "residual_multiplier": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "query_pre_attn_scalar": (),
    "attention_chunk_size": (),
    "scale_emb": (),
    "scale_depth": (),
    "dim_model_base": (),
    "clip_qkv": (),
    "use_qk_norm": (),
    "qk_layernorm": (),
}


class Published(NamedTuple):
    """A model as its config.json describes it.

    Attributes:
      architecture: its class.
      model: ours.
      context: trained context, tokens.
      layout: which features of a head make a pair.
      unread: keys, with their values, that its class ignores and another one would not.
    """

    architecture: Architecture
    model: ModelConfig
    context: int
    layout: Layout
    unread: tuple[str, ...] = ()


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder; raises ValueError if it is missing or no JSON object."""
    path = folder / "config.json"
    try:
        config = parse_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; give a folder with a config.json") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a JSON object")
    return config


def published(config: Mapping[str, Any], name: str, context: int | None = None) -> Published:
    """The model that a config.json describes.

    Args:
      config: its content.
      name: of the folder.
      context: trained context, tokens; None: max_position_embeddings. Of a model with frequencies
        for short rows and others for long ones (Phi-3) it says which.

    Raises:
      ValueError: naming the key that is missing, or that no model of ours has.
    """
    model_type = config.get("model_type")
    kind = _ALIKE.get(str(model_type), model_type)
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"model_type {quoted(model_type, 30)} is not imported; "
            f"{nearest(str(model_type), [*ARCHITECTURES, *_ALIKE])}"
        )
    read, architecture = _Reader(config), ARCHITECTURES[kind]
    _refuse(read, architecture)
    longest = read.count("max_position_embeddings")
    N, D = read.count("num_attention_heads"), read.count("hidden_size")
    latent = _latent(read) if architecture.mla else None
    head_dim = read.count("head_dim", 128 if kind == "qwen3" else D // N)
    if latent is not None:
        head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    layers = read.count(_LAYERS)
    rope_dim = latent.qk_rope_head_dim if latent else head_dim
    head = Head(rope_dim, longest, architecture.mla)
    windows = _windows(read, architecture, layers)
    partial = "partial_rotary_factor" not in _ignored(read)
    ropes = _Ropes(config, head, context or longest, f"{name}'s config.json", partial)
    model = ModelConfig(
        vocab_size=read.count("vocab_size"),
        embed_dim=D,
        num_layers=layers,
        num_heads=N,
        num_kv_heads=None if latent else read.count("num_key_value_heads", N),
        head_dim=head_dim,
        mlp_dim=read.count("intermediate_size"),
        rotary=_rotary(ropes, architecture, windows),
        window=shortest(windows),
        mla=latent,
        tie_embeddings=read.flag("tie_word_embeddings", kind == "smollm3"),
        qk_norm=architecture.qk_norm,
        qkv_bias=architecture.qkv_bias,
        norm_epsilon=read.number("rms_norm_eps", 1e-5 if kind == "phi3" else 1e-6),
    )
    if architecture.mla and model.norm_epsilon != LATENT_EPSILON:
        raise ValueError(
            f"rms_norm_eps={model.norm_epsilon:g}, and this class's norms of latents have "
            f"{LATENT_EPSILON:g}: no model of ours has two"
        )
    layout: Layout = architecture.layout
    if architecture.mla and not read.flag("rope_interleave", True):
        layout = "half"
    unread = tuple(f"{key}={quoted(value, 40)}" for key, value in _ignored(read).items())
    return Published(architecture, model, context or longest, layout, unread)


def _ignored(read: "_Reader") -> dict[str, Any]:
    """Return the keys that the class does not read and that would change another one's logits."""
    config = read.config
    values = {name: config.get(name) for name in _READ_BY}
    for rope in (config.get("rope_parameters"), config.get("rope_scaling")):
        if isinstance(rope, dict):
            partial = rope.get("partial_rotary_factor", values["partial_rotary_factor"])
            # That type reads it in any class.
            is_read = "proportional" in (rope.get("rope_type"), rope.get("type"))
            values["partial_rotary_factor"] = None if is_read else partial
    types = values["layer_types"]
    if isinstance(types, list) and "sliding_attention" not in types:
        values["layer_types"] = None
    return {
        name: value
        for name, value in values.items()
        if config["model_type"] not in _READ_BY[name] and value not in (None, False, 1, [])
    }


def _refuse(read: "_Reader", architecture: Architecture) -> None:
    """Refuse, by its name, what no model of ours has."""
    config = read.config
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ValueError(f"hidden_act {quoted(activation, 30)} is not imported; only silu is")
    if _has_experts(read, architecture):
        raise ValueError(
            "a mixture of experts is not imported; only a config whose layers are all dense is"
        )
    for name, value in _ABSENT.items():
        if name in _READ_BY and config["model_type"] not in _READ_BY[name]:
            continue  # named, and ignored as the class does: Qwen 2 always has attention_bias
        setting = config.get(name, value)
        if setting != value and setting not in (0, None):
            raise ValueError(
                f"{name}={quoted(setting, 40)} is not imported; no model of ours has it"
            )


def _has_experts(read: "_Reader", architecture: Architecture) -> bool:
    if architecture.mla:
        dense = read.get("first_k_dense_replace", 0, int)
        return bool(read.config.get("n_routed_experts", 256)) and dense < read.count(_LAYERS)
    if architecture.model_type == "mellum":
        layers = read.count(_LAYERS)
        return (read.listed("mlp_layer_types", layers) or []) != ["dense"] * layers
    return bool(read.config.get("num_experts"))


class _Reader:
    """Numbers of a config.json, as what they have to be."""

    def __init__(self, config: Mapping[str, Any]):
        self.config = config

    def get(self, name: str, default: Any, kind: Any) -> Any:
        """A value; null stands for the default, and no default for a key that must be there."""
        value = self.config.get(name)
        if value is None:
            value = default
        if value is None:
            raise ValueError(f"config.json lacks {name!r}")
        if wrong := problem(value, kind):
            raise ValueError(f"config.json: {name} must be {wrong}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number, at least 1."""
        return self.get(name, default, Count)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        return float(self.get(name, default, float))

    def flag(self, name: str, default: bool) -> bool:
        """True or False."""
        return self.get(name, default, bool)

    def listed(self, name: str, count: int) -> list[Any] | None:
        """A list of one value a layer, if there is one."""
        values = self.config.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or len(values) < count:
            raise ValueError(f"config.json: {name} must be a list of {count} values, one a layer")
        return values[:count]


def shortest(values: tuple) -> Any:
    """The shortest pattern that, repeated, makes `values`: one value, or as few as do."""
    for length in range(1, len(values) + 1):
        if all(value == values[i % length] for i, value in enumerate(values)):
            return values[0] if length == 1 else values[:length]
    return values


def _windows(read: _Reader, architecture: Architecture, layers: int) -> tuple[int | None, ...]:
    """Each layer's window."""
    if architecture.windows == "none":
        return (None,) * layers
    kind = architecture.model_type
    size = read.config.get("sliding_window", _DEFAULT_WINDOW.get(kind))
    if kind in ("qwen2", "qwen3", "smollm3") and not read.flag("use_sliding_window", False):
        size = None
    if size is not None:
        size = read.count("sliding_window", size)
    types = read.listed("layer_types", layers) if architecture.windows == "by layer" else None
    if types is None:
        types = _layer_types(read, kind, layers)
    for layer_type in types:
        if layer_type not in ("full_attention", "sliding_attention"):
            raise ValueError(f"layer_types has {quoted(layer_type, 30)}, which is not imported")
        if layer_type == "sliding_attention" and size is None and kind == "mellum":
            raise ValueError("config.json lacks 'sliding_window', which layer_types asks for")
    return tuple(size if layer_type == "sliding_attention" else None for layer_type in types)


def _layer_types(read: _Reader, kind: str, layers: int) -> list[str]:
    """Layer types of a config that does not list them."""
    sliding = [True] * layers
    if kind in ("qwen2", "qwen3"):
        first = read.count("max_window_layers", 28)
        sliding = [layer >= first for layer in range(layers)]
    elif kind == "smollm3":
        sliding = [not flag for flag in _rotates(read, layers)]
    elif kind == "mellum":
        sliding = [False] * layers
    return ["sliding_attention" if flag else "full_attention" for flag in sliding]


def _rotates(read: _Reader, layers: int) -> list[bool]:
    """SmolLM3's: which layers rotate."""
    listed = read.listed("no_rope_layers", layers)
    if listed is not None:
        return [bool(flag) for flag in listed]
    interval = read.count("no_rope_layer_interval", 4)
    return [(layer + 1) % interval != 0 for layer in range(layers)]


class _Ropes(NamedTuple):
    """The sources that a model's rotation is read from."""

    config: Mapping[str, Any]
    head: Head
    context: int
    name: str
    partial: bool

    def variant(self, layer_type: str | None = None):
        """That of one kind of layer."""
        rope = rotary_config.of_config(self.config, layer_type)
        if not self.partial and rope["rope_type"] == "default":
            rope.pop("partial_rotary_factor", None)
        elif not self.partial and rope["rope_type"] != "proportional":
            raise ValueError(
                f"rope_type {rope['rope_type']} with partial_rotary_factor is nothing that this "
                "class of transformers runs; take the key out, or set the class that has it"
            )
        return rotary_config.variant(rope, self.head, self.context, self.name)


def _rotary(ropes: _Ropes, architecture: Architecture, windows: tuple) -> Pattern:
    if architecture.ropes == "or none":
        rotates = _rotates(_Reader(ropes.config), len(windows))
        return shortest(tuple(ropes.variant() if rotated else Nope() for rotated in rotates))
    if architecture.ropes == "by window":
        kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
        variants = {kind: ropes.variant(kind) for kind in dict.fromkeys(kinds)}
        return shortest(tuple(variants[kind] for kind in kinds))
    return ropes.variant()


def _latent(read: _Reader) -> MlaConfig:
    rank = read.config.get("q_lora_rank")
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = {name: read.count(name) for name in names}
    return MlaConfig(q_lora_rank=rank and read.count("q_lora_rank"), **sizes)
