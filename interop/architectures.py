"""The classes of transformers that a model can be exported as, and their config.json.

`ARCHITECTURES` lists what each class supports. A model is exported as the first class that supports
all of its features. A feature that no class supports is an error, never omitted.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from data.tokenizer import Tokenizer
from interop.rotary_config import add_version_4_keys, make_rope_parameters
from interop.weights import Entry, Fused, Layout, make_entries
from model.config import ModelConfig
from model.rotary import repeat_pattern
from model.rotary.base import HfHead, Rotary
from model.rotary.nope import Nope
from model.rotary.rope_parameters import LOCAL_BASES
from utils.messages import nearest

LATENT_EPSILON = 1e-6  # of DeepSeek's norms of latents, whatever rms_norm_eps is
# Names of keys of config.json, where they differ from Llama's.
RENAMED = {
    "gpt_neox": {
        "rms_norm_eps": "layer_norm_eps",
        "rope_theta": "rotary_emb_base",
        "partial_rotary_factor": "rotary_pct",
    },
    "gemma3_text": {"hidden_act": "hidden_activation"},
}
_HF_ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


# Fields of a model that every class can have.
SIZES = ("vocab_size", "embed_dim", "num_layers", "num_heads", "head_dim", "mlp_dim")
SIZES += ("tie_embeddings", "norm_epsilon")
# Fields that do not change the function of given parameters.
_PROGRAM = ("align_query_key", "attention", "compute_dtype", "remat", "loss_chunk")
# Fields that have rules of their own here. Learned frequencies are part of `rotary` when exported.
_CHECKED = ("num_kv_heads", "rotary", "window", "mla", "learned_frequencies")
_CHECKED += ("masked_distances", "shift_keys")


def _features(config: Any) -> dict[str, Any]:
    """Return the other fields with their defaults, which are Llama's."""
    excluded = {*SIZES, *_PROGRAM, *_CHECKED}
    return {x.name: x.default for x in dataclasses.fields(config) if x.name not in excluded}


# A field that is new in the model is one of these, so only classes that name it have it.
FEATURES = _features(ModelConfig)


class Architecture(NamedTuple):
    """One class of transformers.

    Attributes:
      model_type: its name in config.json.
      class_name: name of the causal language model.
      windows: layers that may have a window: none, all alike, or any.
      ropes: how rotation may differ between layers: not at all, on or off, or by type of window.
      mla: whether it has it; a model must agree.
      features: values of `FEATURES` that differ from Llama's; a model must agree.
      free: names of `FEATURES` that config.json decides.
      layout: which features of a head form a pair.
      fused: which arrays are one tensor; see `make_entries`.
    """

    model_type: str
    class_name: str
    windows: Literal["none", "all", "by layer"] = "none"
    ropes: Literal["one", "or none", "by window"] = "one"
    mla: bool = False
    features: Mapping[str, Any] = MappingProxyType({})
    free: tuple[str, ...] = ()
    layout: Layout = "half"
    fused: Fused = "no"

    def entries(self, config: ModelConfig) -> list[Entry]:
        """Return the entries of all tensors of a model."""
        return make_entries(config, self.layout, self.fused)


_OLMO: dict[str, Any] = dict(norm_position="after", qk_norm=True, qk_norm_across_heads=True)
_GEMMA: dict[str, Any] = dict(norm="zero_centered_rms", norm_position="both", qk_norm=True)
_GEMMA |= dict(activation="gelu_tanh", scale_embedding=True)
_DIVISOR = ("scale_dim",)
_CLASSES = (
    Architecture("llama", "LlamaForCausalLM"),
    Architecture("mistral", "MistralForCausalLM", windows="all"),
    Architecture("ministral", "MinistralForCausalLM", windows="by layer"),
    Architecture("qwen2", "Qwen2ForCausalLM", windows="by layer", features=dict(qkv_bias=True)),
    Architecture("qwen3", "Qwen3ForCausalLM", windows="by layer", features=dict(qk_norm=True)),
    Architecture("smollm3", "SmolLM3ForCausalLM", windows="by layer", ropes="or none"),
    Architecture("deepseek_v3", "DeepseekV3ForCausalLM", mla=True, layout="interleaved"),
    Architecture(
        "mellum", "MellumForCausalLM", "by layer", "by window", features=dict(qk_norm=True)
    ),
    Architecture("phi3", "Phi3ForCausalLM", windows="all", layout="partial", fused="rows"),
    Architecture("olmo2", "Olmo2ForCausalLM", features=_OLMO),
    Architecture("olmo3", "Olmo3ForCausalLM", "by layer", "by window", features=_OLMO),
    Architecture(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        features=dict(norm="layer", qkv_bias=True, out_bias=True, mlp_bias=True, mlp_gate=False),
        free=("activation", "parallel_residual"),
        layout="partial",
        fused="heads",
    ),
    Architecture(
        "gemma3_text", "Gemma3ForCausalLM", "by layer", "by window", features=_GEMMA, free=_DIVISOR
    ),
)
ARCHITECTURES = {architecture.model_type: architecture for architecture in _CLASSES}


def choose_architecture(config: ModelConfig, model_type: str | None = None) -> Architecture:
    """Return the class that a model is exported as.

    Args:
      config: the model.
      model_type: the only class allowed; None: the first that fits.

    Raises:
      ValueError: naming a feature that no class, or not this one, supports.
    """
    for feature, fix in _unsupported(config):
        raise ValueError(f"no class of transformers has {feature}; {fix}")
    if model_type is not None and model_type not in ARCHITECTURES:
        raise ValueError(
            f"unknown architecture {model_type!r}; {nearest(model_type, ARCHITECTURES)}"
        )
    candidates = [ARCHITECTURES[model_type]] if model_type else list(ARCHITECTURES.values())
    # A class with another type of attention is not the nearest.
    mismatches, best = min(
        ((list(_mismatches(candidate, config)), candidate) for candidate in candidates),
        key=lambda pair: (pair[1].mla != (config.mla is not None), len(pair[0])),
    )
    if mismatches:
        subject = model_type or f"no class of transformers fits; the nearest, {best.model_type},"
        raise ValueError(f"{subject} does not fit this model: {'; '.join(mismatches)}")
    return best


def _unsupported(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield each feature of a model that no class supports, and what to do."""
    layers = _heads_by_layer(config)
    variants = [head for layer in layers for head in layer]
    dynamic = [type(v).__name__ for v in variants if type(v).at_length is not Rotary.at_length]
    retrain = "train without it"
    if config.shift_keys:
        yield "key smearing (model.shift_keys)", "train with model.shift_keys=false"
    if config.masked_distances is not None:
        yield "masked distances (model.masked_distances)", retrain
    if any(variant.log_n != "off" for variant in variants):
        yield "log-n scaling of queries (log_n)", retrain
    if dynamic:
        names = ", ".join(dict.fromkeys(dynamic))
        fix = "evaluate the run here, or train with a static variant"
        yield f"frequencies that depend on a row's length ({names})", fix
    if any(len(set(layer)) > 1 for layer in layers):
        yield "frequencies that differ between heads (a rotary pattern over heads)", retrain


def _heads_by_layer(config: ModelConfig) -> list[tuple[Rotary, ...]]:
    """Return the pattern over heads of each layer."""
    layers = repeat_pattern(config.rotary, config.num_layers, "num_layers")
    return [layer if isinstance(layer, tuple) else (layer,) for layer in layers]


def variants_by_layer(config: ModelConfig) -> list[Rotary]:
    """Return the variant of each layer of a model whose heads are alike."""
    return [layer[0] for layer in _heads_by_layer(config)]


def windows_by_layer(config: ModelConfig) -> tuple[int | None, ...]:
    """Return the window of each layer."""
    return repeat_pattern(config.window, config.num_layers, "num_layers")


def _mismatches(architecture: Architecture, config: ModelConfig) -> Iterator[str]:
    """Describe each difference between a model and what a class supports."""
    if architecture.mla != (config.mla is not None):
        yield f"it {'lacks' if architecture.mla else 'has'} model.mla"
    for name, value in (_features(config) | dict(architecture.features)).items():
        if getattr(config, name) != value and name not in architecture.free:
            yield f"model.{name}={getattr(config, name)} (the class has {value})"
    windows, variants = windows_by_layer(config), variants_by_layer(config)
    sizes = {window for window in windows if window is not None}
    if len(sizes) > 1:
        yield f"windows of {len(sizes)} sizes"
    elif sizes and architecture.windows == "none":
        yield "model.window"
    elif sizes and None in windows and architecture.windows == "all":
        yield "a window in some layers only"
    if architecture.layout == "half" and any(_has_two_scales(v, config) for v in variants):
        yield "a separate logit scale of unrotated features (Phi-4-mini)"
    if problem := _rope_mismatch(architecture, variants, windows):
        yield problem
    if architecture.fused == "heads":
        if config.kv_heads != config.num_heads:
            yield f"num_kv_heads={config.kv_heads} is not num_heads={config.num_heads}"
        if config.activation == "silu":
            yield "model.activation=silu (the class has gelu and gelu_tanh)"
    if architecture.model_type in ("llama", "gemma3_text") and config.embed_dim % config.num_heads:
        yield f"embed_dim={config.embed_dim} is not a multiple of num_heads={config.num_heads}"
    if architecture.fused != "no" and config.head_dim * config.num_heads != config.embed_dim:
        yield f"head_dim={config.head_dim} is not embed_dim / num_heads"
    if architecture.mla and config.norm_epsilon != LATENT_EPSILON:
        yield (
            f"norm_epsilon={config.norm_epsilon:g} differs from DeepSeek's {LATENT_EPSILON:g} for "
            "norms of latents (train with model.norm_epsilon=1e-6)"
        )


def _has_two_scales(variant: Rotary, config: ModelConfig) -> bool:
    """Return True if unrotated features of a head have another logit scale than rotated ones."""
    has_unrotated = (variant.inv_freq(config.rope_head_dim) == 0).any()
    return bool(has_unrotated) and variant.logit_scale != variant.unrotated_logit_scale


def _rope_mismatch(architecture: Architecture, variants: list[Rotary], windows: Any) -> str:
    if len(set(variants)) == 1:
        return ""
    if architecture.ropes == "one":
        return "rotation that differs between layers"
    if architecture.ropes == "or none":
        rotating = {variant for variant in variants if not isinstance(variant, Nope)}
        return "" if len(rotating) == 1 else f"{len(rotating)} kinds of rotation"
    kinds = {(window is None, variant) for window, variant in zip(windows, variants, strict=True)}
    if len(kinds) > len({is_full for is_full, _ in kinds}):
        return "rotation that differs between layers with the same type of window"
    return ""


def make_config(
    architecture: Architecture,
    config: ModelConfig,
    context: int,
    tokenizer: Tokenizer | None = None,
    rope_type: str | None = None,
) -> dict[str, Any]:
    """Return the config.json of a model in float32 that fits the class.

    Args:
      architecture: the class.
      config: the model.
      context: trained context, tokens.
      tokenizer: its BOS and EOS are recorded.
      rope_type: the only type allowed; None: any that fits.

    Raises:
      ValueError: if the rotation cannot be written as `rope_type`.
    """
    hf_config: dict[str, Any] = {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.embed_dim,
        "intermediate_size": config.mlp_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": _HF_ACTIVATIONS[config.activation],
        "max_position_embeddings": context,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": config.out_bias,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "bos_token_id": tokenizer and tokenizer.bos_id,
        "eos_token_id": tokenizer and tokenizer.eos_id,
        "pad_token_id": None,
        "use_cache": True,
        # transformers 5 reads the first, version 4 the second.
        "dtype": "float32",
        "torch_dtype": "float32",
        **_rope_keys(architecture, config, context, rope_type),
        **_window_keys(architecture, config),
    }
    mla = config.mla
    if mla is not None:
        hf_config |= {
            "kv_lora_rank": mla.kv_lora_rank,
            "q_lora_rank": mla.q_lora_rank,
            "qk_nope_head_dim": mla.qk_nope_head_dim,
            "qk_rope_head_dim": mla.qk_rope_head_dim,
            "v_head_dim": mla.v_head_dim,
            "head_dim": mla.qk_rope_head_dim,
            "rope_interleave": True,
            # A mixture-of-experts class; here all layers are dense.
            "first_k_dense_replace": config.num_layers,
            "num_nextn_predict_layers": 0,
        }
    if architecture.model_type == "mellum":  # likewise
        hf_config["mlp_layer_types"] = ["dense"] * config.num_layers
    if "parallel_residual" in architecture.free:
        hf_config["use_parallel_residual"] = config.parallel_residual
    if "scale_dim" in architecture.free:
        hf_config["query_pre_attn_scalar"] = config.scale_dim or config.head_dim
    names = RENAMED.get(architecture.model_type, {})
    return {names.get(name, name): value for name, value in hf_config.items()}


def _rope_keys(
    architecture: Architecture, config: ModelConfig, context: int, rope_type: str | None
) -> dict[str, Any]:
    head = HfHead(config.rope_head_dim, context, architecture.mla)
    variants, partial = variants_by_layer(config), architecture.layout == "partial"

    def parameters(variant: Rotary) -> dict[str, Any]:
        return make_rope_parameters(variant, head, rope_type=rope_type, partial=partial)

    if architecture.ropes == "by window":
        windows = map(_layer_type, windows_by_layer(config))
        kinds = {kind: parameters(v) for kind, v in zip(windows, variants, strict=True)}
        full = kinds.get("full_attention")
        local = kinds.get("sliding_attention", {"rope_type": "default", **(full or {})})
        name, _ = LOCAL_BASES.get(architecture.model_type, (None, None))
        same = name != "rope_theta" or full is None or local["rope_theta"] == full["rope_theta"]
        keys: dict[str, Any] = {}
        if name and full and same and local["rope_type"] == "default":
            # Version 4 scales full attention only. What it cannot read is in the new style only.
            keys = add_version_4_keys(full) | {name: local["rope_theta"]}
        return keys | {"rope_parameters": kinds}
    rotating = [variant for variant in variants if not isinstance(variant, Nope)] or variants
    keys = add_version_4_keys(parameters(rotating[0]))
    if architecture.ropes == "or none":
        keys["no_rope_layers"] = [int(not isinstance(variant, Nope)) for variant in variants]
    if architecture.model_type == "phi3":
        # Version 4 reads Phi-3's from here.
        original = keys["rope_parameters"].get("original_max_position_embeddings", context)
        keys["original_max_position_embeddings"] = original
    return keys


def _layer_type(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _window_keys(architecture: Architecture, config: ModelConfig) -> dict[str, Any]:
    windows = windows_by_layer(config)
    size = next((window for window in windows if window is not None), None)
    if architecture.windows == "none":
        return {}
    keys: dict[str, Any] = {"sliding_window": size}
    if architecture.windows == "by layer":
        keys |= {
            "use_sliding_window": size is not None,
            "layer_types": [_layer_type(window) for window in windows],
            # For readers that do not know layer_types.
            "max_window_layers": windows.index(size) if size is not None else config.num_layers,
        }
    return keys
