"""The classes of transformers that a model can be exported as, and their config.json.

`ARCHITECTURES` lists what each class supports, in the order in which `interop.choose` tries them.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ropewalk.data.tokenizer import Tokenizer
from ropewalk.interop.rotary_config import add_version_4_keys, make_rope_parameters
from ropewalk.interop.weights import Entry, Fused, Layout, make_entries
from ropewalk.model.config import ModelConfig
from ropewalk.model.rotary import expand_pattern
from ropewalk.model.rotary.base import HfHead, Rotary
from ropewalk.model.rotary.nope import Nope
from ropewalk.model.rotary.rope_parameters import LOCAL_BASES

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


class Architecture(NamedTuple):
    """One class of transformers.

    Attributes:
      model_type: its name in config.json.
      class_name: name of the causal language model.
      windows: layers that may have a window: none, all alike, or any.
      ropes: how rotation may differ between layers: not at all, on or off, or by type of window.
      mla: whether it has multi-head latent attention.
      features: fields of `ModelConfig` whose values differ from their defaults, which are Llama's.
      free: names of fields that config.json decides.
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
# Published models whose class is not in transformers but in their folders, where it is never run:
# they are only imported. By model_type and vocabulary: Baichuan 1 and 2 have one model_type.
IMPORTED_ONLY = {
    ("baichuan", 64_000): Architecture("baichuan", "BaiChuanForCausalLM", fused="pack"),
    ("baichuan", 125_696): Architecture(
        "baichuan", "BaichuanForCausalLM", fused="pack, unit output"
    ),
}
IMPORTED_TYPES = {model_type for model_type, _ in IMPORTED_ONLY}


def make_config(
    architecture: Architecture,
    config: ModelConfig,
    context: int,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
    """Return the config.json of a model in float32, without what the class does not have.

    Args:
      architecture: the class.
      config: the model.
      context: trained context, tokens.
      tokenizer: its BOS and EOS are recorded.

    Raises:
      ValueError: if the class cannot rotate as the model does.
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
        **_rope_keys(architecture, config, context),
        **_window_keys(architecture, config.windows, context),
    }
    mla = config.mla
    if mla is not None:
        hf_config |= dataclasses.asdict(mla) | {
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


def _rope_keys(architecture: Architecture, config: ModelConfig, context: int) -> dict[str, Any]:
    head = HfHead(config.rope_head_dim, context, architecture.mla)
    heads_by_layer = expand_pattern(config.rotary, config.num_layers, config.kv_heads)
    variants, partial = [heads[0] for heads in heads_by_layer], architecture.layout == "partial"

    def parameters(variant: Rotary) -> dict[str, Any]:
        return make_rope_parameters(variant, head, partial=partial)

    if architecture.ropes == "by window":
        windows = map(_layer_type, config.windows)
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


def _window_keys(architecture: Architecture, windows: tuple, context: int) -> dict[str, Any]:
    size = next((window for window in windows if window is not None), None)
    if architecture.windows == "none":
        return {}
    # These classes make a mask with a window even if no layer has one.
    is_needed = architecture.ropes == "by window" or architecture.model_type == "ministral"
    keys: dict[str, Any] = {"sliding_window": size or (context if is_needed else None)}
    if architecture.windows == "by layer":
        keys |= {
            "use_sliding_window": size is not None,
            "layer_types": [_layer_type(window) for window in windows],
            # For readers that do not know layer_types.
            "max_window_layers": windows.index(size) if size is not None else len(windows),
        }
    return keys
