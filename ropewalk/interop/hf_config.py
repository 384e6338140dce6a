"""Parse a published config.json as a `ModelConfig`; refuse keys that no model of ours has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

from ropewalk.interop.architectures import (
    ARCHITECTURES,
    IMPORTED_ONLY,
    IMPORTED_TYPES,
    LATENT_EPSILON,
    RENAMED,
    Architecture,
)
from ropewalk.interop.rotary_config import read_variant
from ropewalk.interop.weights import Entry, Layout, make_entries
from ropewalk.model.config import MlaConfig, ModelConfig
from ropewalk.model.rotary import Pattern
from ropewalk.model.rotary.base import HfHead, Rotary
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.rope_parameters import read_rope
from ropewalk.utils.checks import Bounds, Count, Layers, problem
from ropewalk.utils.limits import read_json
from ropewalk.utils.messages import one_line, quoted

_ALIASES = {"deepseek_v2": "deepseek_v3"}  # it routes experts differently; dense layers are equal
_LAYERS, _PARTIAL = "num_hidden_layers", "partial_rotary_factor"
# Values of missing keys, where they differ from Llama's.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 4096, "num_key_value_heads": 8},
    "ministral": {"sliding_window": 4096, "num_key_value_heads": 8},
    "qwen2": {"sliding_window": 4096, "num_key_value_heads": 32},
    "qwen3": {"sliding_window": 4096, "num_key_value_heads": 32, "head_dim": 128},
    "smollm3": {"tie_word_embeddings": True, "num_key_value_heads": 4},
    "mellum": {"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 1024},
    "phi3": {"rms_norm_eps": 1e-5},
    "olmo2": {"rms_norm_eps": 1e-5},
    "olmo3": {"rms_norm_eps": 1e-5, "sliding_window": 4096},
    "gpt_neox": {"rms_norm_eps": 1e-5, "hidden_act": "gelu"},
    "gemma3_text": {"head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True}
    | {"hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256}
    | {"sliding_window_pattern": 6, "num_key_value_heads": 4},
}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
_ACTIVATIONS |= {"gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh"}
# Keys that would change the logits and that no model of ours has, and the types whose classes read
# them; None: all. Qwen 2 always has attention_bias and ignores the key.
_UNSUPPORTED: dict[str, set[str] | None] = {
    "attention_bias": {"llama", "qwen3", "smollm3", "deepseek_v2", "deepseek_v3", "mellum"}
    | {"olmo2", "olmo3", "gpt_neox", "gemma3_text"},
    "mlp_bias": {"llama", "smollm3", "deepseek_v2"},
    **dict.fromkeys(("quantization_config", "num_mtp_layers", "is_causal")),
    "use_bidirectional_attention": {"gemma3_text"},
    "final_logit_softcapping": {"gemma3_text"},
    "attn_logit_softcapping": {"gemma3_text"},
}

# Keys that no class reads when it computes logits, or only beside keys that are read: records,
# training, what is returned, token ids, windows of types without them, experts of dense models.
_NAMES = """
architectures auto_map dtype torch_dtype transformers_version tokenizer_class model_type
task_specific_params id2label label2id problem_type finetuning_task gradient_checkpointing
unsloth_version unsloth_fixed z_loss_weight model_max_length max_sequence_length
initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop classifier_dropout
use_cache return_dict output_attentions output_hidden_states output_router_logits
chunk_size_feed_forward is_decoder is_encoder_decoder pretraining_tp
bos_token_id eos_token_id pad_token_id layer_norm_eps rotary_emb_base rotary_pct
hidden_activation sliding_window use_sliding_window max_window_layers layer_types
no_rope_layer_interval num_nextn_predict_layers moe_intermediate_size n_shared_experts
routed_scaling_factor n_group topk_group topk_method num_experts_per_tok norm_topk_prob
scoring_func seq_aux aux_loss_alpha ep_size moe_layer_freq num_local_experts
router_aux_loss_coef
"""
_NEUTRAL = {*_NAMES.split()}


class HfModel(NamedTuple):
    """A model that a config.json describes.

    Attributes:
      architecture: its class.
      model: our config.
      context: trained context, tokens.
      longest: max_position_embeddings, tokens.
      keys: content of the config.json, with Llama's names of keys.
      layout: which features of a head form a pair.
      unread: keys that were not read, have a value, and may change what the model computes.
    """

    architecture: Architecture
    model: ModelConfig
    context: int
    longest: int
    keys: Mapping[str, Any]
    layout: Layout
    unread: tuple[str, ...]

    def entries(self) -> list[Entry]:
        """Return the entries of all tensors of the model."""
        return make_entries(self.model, self.layout, self.architecture.fused)


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of a config.json, or of the config.json of a folder.

    Raises:
      ValueError: if it is missing or has no model_type.
    """
    path = path / "config.json" if path.is_dir() else path
    if path.suffix == ".gguf":
        raise ValueError(f"{path}: give the config.json of the model that it was made of")
    try:
        config = read_json(path)
    except OSError as error:
        raise ValueError(
            f"{path}: {error.strerror}; give a config.json or a folder that has one "
            "(an adapter must be merged into its model first: peft's merge_and_unload)"
        ) from None
    except ValueError as error:
        reason = str(error).removeprefix(f"{path} ")
        raise ValueError(f"{path}: {reason}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(
            f"{path} is no config.json of a published model: it has no model_type (for the "
            "frequencies of a run: ropewalk theory length RUN)"
        )
    return config


def parse_config(config: Mapping[str, Any], name: str, context: int | None = None) -> HfModel:
    """Return the model that a config.json describes.

    Args:
      config: its content.
      name: name of the folder.
      context: trained context, tokens; None: max_position_embeddings. If the model has separate
        frequencies for short and long rows (Phi-3), the context selects one.

    Raises:
      ValueError: naming a key that is missing, or that no model of ours has.
    """
    try:
        return _parse(config, name, context)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(
            f"config.json: a value has the wrong type ({one_line(str(error), 100)})"
        ) from error


def _parse(config: Mapping[str, Any], name: str, context: int | None) -> HfModel:
    architecture, config = _find_architecture(config), _Watched(_with_llama_names(config))
    kind = architecture.model_type
    reader = _Reader(config, _DEFAULTS.get(kind, {}))
    layers = int(reader.value(_LAYERS, None, Layers))
    _refuse_unsupported(reader, architecture)
    longest = reader.count("max_position_embeddings")
    N, D = reader.count("num_attention_heads"), reader.count("hidden_size")
    mla = _read_mla(reader) if architecture.mla else None
    if mla is not None:
        head_dim, rope_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.qk_rope_head_dim
        for name, size in (("head_dim", rope_dim), ("qk_head_dim", head_dim)):
            if reader.count(name, size) != size:
                _refuse(name, config[name], f"it must be {size}")
    else:
        head_dim = rope_dim = reader.count("head_dim", D // N)
    if kind in ("llama", "gemma3_text") and D % N:
        _refuse("hidden_size", D, f"must be a multiple of num_attention_heads={N}")
    if architecture.fused == "heads" and head_dim != D // N:
        _refuse("head_dim", head_dim, f"must be {D // N}, hidden_size / heads")
    if head_dim % 2 or rope_dim % 2:
        _refuse("head_dim", head_dim, "pairs of features rotate, so it must be even")
    windows = _read_windows(reader, architecture, layers)
    head = HfHead(rope_dim, longest, architecture.mla)

    def variant(layer_type: str | None = None) -> Rotary:
        """Return the variant of one type of layer."""
        rope = read_rope(config, layer_type)
        is_partial, rope_type = architecture.layout == "partial", rope["rope_type"]
        if kind == "phi3" and rope_type == "longrope" and head_dim != D // N:
            _refuse("head_dim", head_dim, f"must be {D // N}, hidden_size / heads, with longrope")
        is_unread = kind == "phi3" and rope_type not in ("default", "longrope")
        if is_unread or (is_partial and rope_type == "proportional"):
            _refuse("rope_type", rope_type, f"not read for model_type {kind}")
        if not is_partial and rope_type != "proportional" and rope.get(_PARTIAL, 1) != 1:
            factor = rope.pop(_PARTIAL)
            if rope_type != "default":
                reason = f"no class reads it for model_type {kind} and rope_type {rope_type}"
                _refuse(_PARTIAL, factor, f"{reason}; remove the key")
        return read_variant(rope, head, context or longest, f"{name}'s config.json")

    is_multi_head = architecture.mla or architecture.fused == "heads"
    is_multi_head |= config.get("num_key_value_heads", 0) is None  # unlike a key that is missing
    model = ModelConfig(
        vocab_size=reader.count("vocab_size"),
        embed_dim=D,
        num_layers=layers,
        num_heads=N,
        num_kv_heads=None if is_multi_head else reader.count("num_key_value_heads", N),
        head_dim=head_dim,
        mlp_dim=reader.count("intermediate_size"),
        rotary=_read_rotary(reader, architecture, windows, variant),
        window=shortest_pattern(windows),
        mla=mla,
        tie_embeddings=reader.value("tie_word_embeddings", False, bool),
        **_read_features(reader, architecture, head_dim),
        norm_epsilon=float(reader.value("rms_norm_eps", 1e-6, float)),
    )
    if architecture.mla and model.norm_epsilon != LATENT_EPSILON:
        reason = f"norms of latents have {LATENT_EPSILON:g}, and our models have one epsilon"
        _refuse("rms_norm_eps", model.norm_epsilon, reason)
    layout: Layout = architecture.layout
    # Version 2 ignores the key, and null is false.
    if config["model_type"] == "deepseek_v3" and not config.get("rope_interleave", True):
        layout = "half"
    unread = (x for x, value in config.items() if x not in config.read and value is not None)
    unread = tuple(x for x in unread if x not in _NEUTRAL and not x.startswith("_"))
    return HfModel(architecture, model, context or longest, longest, config, layout, unread)


class _Watched(dict[str, Any]):
    """The content of a config.json, and the keys that were read."""

    def __init__(self, config: Mapping[str, Any]):
        super().__init__(config)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        self.read.add(key)
        return super().get(key, default)


def _refuse(name: str, value: Any, reason: str) -> NoReturn:
    """Raise ValueError for a value that no model of ours has."""
    raise ValueError(f"config.json: {name}={quoted(value, 40)} is not supported: {reason}")


def resolve_type(config: Mapping[str, Any]) -> str:
    """Return the type that transformers' AutoConfig makes of a config.json."""
    model_type = str(config.get("model_type"))
    return "ministral" if model_type == "mistral" and "layer_types" in config else model_type


def _find_architecture(config: Mapping[str, Any]) -> Architecture:
    """Return the class of a config.json; raise ValueError if none is imported."""
    model_type = resolve_type(config)
    kind = _ALIASES.get(model_type, model_type)
    if kind == "gemma3":
        _refuse("model_type", kind, "multimodal; write its text model first (docs/interop.md)")
    if kind in IMPORTED_TYPES:
        if "max_position_embeddings" not in config:  # Baichuan's 13B models have no rotation
            reason = "linear biases (ALiBi) instead of a rotation; the 7B models are imported"
            _refuse("max_position_embeddings", None, reason)
        size, sizes = config.get("vocab_size"), [x for name, x in IMPORTED_ONLY if name == kind]
        if size not in sizes:
            allowed = " and ".join(map(str, sizes))
            _refuse("vocab_size", size, f"{kind} has {allowed}; it tells how the output is scaled")
        return IMPORTED_ONLY[kind, size]
    if kind not in ARCHITECTURES:
        allowed = ", ".join(sorted({*ARCHITECTURES, *IMPORTED_TYPES, *_ALIASES}))
        _refuse("model_type", model_type, f"imported are {allowed}")
    return ARCHITECTURES[kind]


def _with_llama_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json with Llama's names of keys."""
    names = RENAMED.get(config["model_type"], {})
    renamed = {ours: config[theirs] for ours, theirs in names.items() if theirs in config}
    config = {key: value for key, value in config.items() if key not in names} | renamed
    is_nested = "partial_rotary_factor" in (config.get("rope_parameters") or {})
    if config["model_type"] == "gpt_neox" and not is_nested:
        config.setdefault("partial_rotary_factor", 0.25)
    if config["model_type"] == "phi3":
        config.setdefault("original_max_position_embeddings", 4096)
    if config["model_type"] == "mellum" and not config.get("rope_parameters"):
        bases = {"full_attention": 500_000.0, "sliding_attention": 10_000.0}
        config["rope_parameters"] = {kind: {"rope_theta": base} for kind, base in bases.items()}
    return config


def _read_features(reader: "_Reader", architecture: Architecture, head_dim: int) -> dict[str, Any]:
    """Return the fields of a model that are not sizes."""
    free, features = architecture.free, dict(architecture.features)
    allowed = (features.get("activation", "silu"),)
    if "activation" in free:
        allowed = ("gelu", "gelu_tanh")
    activation = reader.value("hidden_act", "silu", str)
    features["activation"] = _ACTIVATIONS.get(activation)
    if features["activation"] not in allowed:
        names = ", ".join(name for name, ours in _ACTIVATIONS.items() if ours in allowed)
        _refuse("hidden_act", activation, f"allowed are {names}")
    if "parallel_residual" in free:
        features["parallel_residual"] = reader.value("use_parallel_residual", True, bool)
    if "scale_dim" in free:
        scale_dim = reader.count("query_pre_attn_scalar")
        features["scale_dim"] = None if scale_dim == head_dim else scale_dim
    return features


class _Reader:
    """Typed values of a config.json.

    Attributes:
      config: its content.
      defaults: values of the class for keys that are missing.
    """

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]):
        self.config, self.defaults = config, defaults

    def value(self, name: str, default: Any, kind: Any) -> Any:
        """Return a value; null means the default, and a key without a default is required."""
        value = self.config.get(name)
        if value is None:
            value = self.defaults.get(name, default)
        if value is None:
            raise ValueError(f"config.json lacks {name!r}")
        if wrong := problem(value, kind):
            raise ValueError(f"config.json: {name} must be {wrong}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """Return an integer of at least 1."""
        return int(self.value(name, default, Count))  # 4096.0 is a whole number, too

    def by_layer(self, name: str, num_layers: int) -> list[Any] | None:
        """Return a list of one value per layer; None if the key is missing."""
        values = self.config.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or len(values) < num_layers:
            raise ValueError(
                f"config.json: {name} must be a list of {num_layers} values, one per layer"
            )
        return values[:num_layers]


def _refuse_unsupported(reader: _Reader, architecture: Architecture) -> None:
    """Refuse features that no model of ours has."""
    if _has_experts(reader, architecture):
        raise ValueError(
            "config.json: a mixture of experts is not supported; all layers must be dense"
        )
    for name, types in _UNSUPPORTED.items():
        neutral = name == "attention_bias" and architecture.features.get("out_bias", False)
        neutral |= name == "is_causal"
        value = reader.config.get(name, neutral)
        is_read = types is None or reader.config["model_type"] in types
        if is_read and bool(value) != neutral:
            _refuse(name, value, "allowed is True" if neutral else "our models have none")


def _has_experts(reader: _Reader, architecture: Architecture) -> bool:
    if architecture.mla:
        dense = reader.value("first_k_dense_replace", 0, int)
        return bool(reader.config.get("n_routed_experts", 256)) and dense < reader.count(_LAYERS)
    if architecture.model_type == "mellum":
        layers = reader.count(_LAYERS)
        return reader.by_layer("mlp_layer_types", layers) != ["dense"] * layers
    return any(reader.config.get(name) for name in ("num_experts", "num_local_experts"))


def shortest_pattern(values: tuple) -> Any:
    """Return the shortest pattern that repeats to `values`: one value, or a tuple of several."""
    for length in range(1, len(values) + 1):
        if all(value == values[i % length] for i, value in enumerate(values)):
            return values[0] if length == 1 else values[:length]
    return values


def _read_windows(
    reader: _Reader, architecture: Architecture, layers: int
) -> tuple[int | None, ...]:
    """Return the window of each layer."""
    if architecture.windows == "none":
        return (None,) * layers
    kind, name = architecture.model_type, "sliding_window"
    has_window = reader.config.get(name, reader.defaults.get(name)) is not None
    types = reader.by_layer("layer_types", layers) if architecture.windows == "by layer" else None
    # SmolLM3's masks follow layer_types alone.
    if kind in ("qwen2", "qwen3") or (kind == "smollm3" and types is None):
        has_window = has_window and reader.value("use_sliding_window", False, bool)
    size = reader.count(name) if has_window else None
    if types is not None:
        for layer_type in types:
            if layer_type not in ("full_attention", "sliding_attention"):
                _refuse("layer_types", layer_type, "a model has full and sliding attention only")
        slides = [layer_type == "sliding_attention" for layer_type in types]
    elif kind in ("qwen2", "qwen3"):
        first = reader.value("max_window_layers", 28, Annotated[int, Bounds(at_least=0)])
        slides = [layer >= first for layer in range(layers)]
    elif kind == "smollm3":
        slides = [not rotates for rotates in _rotating_layers(reader, layers)]
    elif kind in ("olmo3", "gemma3_text"):  # a layer without a window ends each period
        period = reader.count("sliding_window_pattern") if kind == "gemma3_text" else 4
        slides = [(layer + 1) % period != 0 for layer in range(layers)]
    else:
        slides = [kind != "mellum"] * layers
    if (types is not None or architecture.ropes == "by window") and size is None and any(slides):
        raise ValueError("config.json lacks 'sliding_window', which layer_types requires")
    return tuple(size if slide else None for slide in slides)


def _rotating_layers(reader: _Reader, layers: int) -> list[bool]:
    """Return which layers of a SmolLM3 rotate."""
    flags = reader.by_layer("no_rope_layers", layers)
    if flags is not None:
        return [bool(flag) for flag in flags]
    interval = reader.count("no_rope_layer_interval", 4)
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def _read_rotary(reader: _Reader, architecture: Architecture, windows: tuple, variant) -> Pattern:
    """Return the pattern over layers; `variant(layer_type)` reads the variant of one type."""
    if architecture.ropes == "or none":
        rotating = _rotating_layers(reader, len(windows))
        return shortest_pattern(tuple(variant() if rotates else Nope() for rotates in rotating))
    if architecture.ropes == "by window":
        types = ["full_attention" if window is None else "sliding_attention" for window in windows]
        variants = {layer_type: variant(layer_type) for layer_type in dict.fromkeys(types)}
        return shortest_pattern(tuple(variants[layer_type] for layer_type in types))
    return variant()


def _read_mla(reader: _Reader) -> MlaConfig:
    rank = reader.config.get("q_lora_rank")
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = {name: reader.count(name) for name in names}
    return MlaConfig(q_lora_rank=rank and reader.count("q_lora_rank"), **sizes)
