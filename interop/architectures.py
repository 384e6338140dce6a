"""Which of transformers' classes a model of ours is, and its config.json.

A class says what it can have, in one row of `ARCHITECTURES`; a model goes out as the first that has
all it needs. What no class has is refused by its name, and never left out.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

from interop import rotary_config
from interop.rotary_config import Head
from interop.weights import Entry, Layout, entries
from model.config import ModelConfig
from model.rotary import repeat_pattern
from model.rotary.base import Rotary
from model.rotary.nope import Nope
from utils.messages import nearest

LATENT_EPSILON = 1e-6  # of DeepSeek's norms of latents, whatever rms_norm_eps says


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """One class of transformers.

    Attributes:
      model_type: in config.json.
      class_name: of the causal language model.
      windows: where a window may stand: nowhere, in all layers alike, or by layer.
      ropes: how rotation may differ by layer: not at all, on or off, or by kind of window.
      qk_norm, qkv_bias, mla: whether it has them; a model must have them too.
      layout: which features of a head make a pair.
      fused: whether queries, keys and values are one tensor, and gate and up.
      tied_to_heads: whether a head's size is the width over the number of heads.
    """

    model_type: str
    class_name: str
    windows: Literal["none", "all", "by layer"] = "none"
    ropes: Literal["one", "or none", "by window"] = "one"
    qk_norm: bool = False
    qkv_bias: bool = False
    mla: bool = False
    layout: Layout = "half"
    fused: bool = False
    tied_to_heads: bool = False

    def entries(self, config: ModelConfig) -> list[Entry]:
        """Every tensor of its files."""
        return entries(config, self.layout, fused=self.fused)


ARCHITECTURES = {
    architecture.model_type: architecture
    for architecture in (
        Architecture(model_type="llama", class_name="LlamaForCausalLM"),
        Architecture(model_type="mistral", class_name="MistralForCausalLM", windows="all"),
        Architecture(model_type="ministral", class_name="MinistralForCausalLM", windows="by layer"),
        Architecture(
            model_type="qwen2", class_name="Qwen2ForCausalLM", windows="by layer", qkv_bias=True
        ),
        Architecture(
            model_type="qwen3", class_name="Qwen3ForCausalLM", windows="by layer", qk_norm=True
        ),
        Architecture(
            model_type="smollm3",
            class_name="SmolLM3ForCausalLM",
            windows="by layer",
            ropes="or none",
        ),
        Architecture(
            model_type="deepseek_v3",
            class_name="DeepseekV3ForCausalLM",
            mla=True,
            layout="interleaved",
        ),
        Architecture(
            model_type="mellum",
            class_name="MellumForCausalLM",
            windows="by layer",
            ropes="by window",
            qk_norm=True,
        ),
        Architecture(
            model_type="phi3",
            class_name="Phi3ForCausalLM",
            windows="all",
            layout="partial",
            fused=True,
            tied_to_heads=True,
        ),
    )
}


def choose(config: ModelConfig, wanted: str | None = None) -> Architecture:
    """The class that a model goes out as.

    Args:
      config: of the model.
      wanted: a model_type; None for the first that fits.

    Raises:
      ValueError: naming what no class has, or the class that is wanted has not.
    """
    for name, has, fix in _nowhere(config):
        if has:
            raise ValueError(f"no class of transformers has {name}; {fix}")
    if wanted is not None and wanted not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {wanted!r}; {nearest(wanted, ARCHITECTURES)}")
    candidates = [ARCHITECTURES[wanted]] if wanted else list(ARCHITECTURES.values())
    problems = [(list(_lacks(candidate, config)), candidate) for candidate in candidates]
    # Of kinds of attention there is no near and far.
    lacks, best = min(
        problems, key=lambda pair: (pair[1].mla != (config.mla is not None), len(pair[0]))
    )
    if lacks and wanted:
        raise ValueError(f"{wanted} does not have this model: {'; '.join(lacks)}")
    if lacks:
        raise ValueError(
            f"no class of transformers has this model; {best.model_type} is the nearest, but: "
            f"{'; '.join(lacks)}"
        )
    return best


def _nowhere(config: ModelConfig) -> Iterator[tuple[str, bool, str]]:
    """Features that no class has: the name, whether the model has it, and what to do."""
    heads = _layers(config.rotary, config.num_layers)
    variants = [head for layer in heads for head in layer]
    dynamic = [type(v).__name__ for v in variants if type(v).at_length is not Rotary.at_length]
    again = "train without it"
    yield "shifted keys (model.shift_keys)", config.shift_keys, "train with model.shift_keys=false"
    yield "masked distances (model.masked_distances)", config.masked_distances is not None, again
    log_n = any(variant.log_n != "off" for variant in variants)
    yield "log-n scaling of queries (log_n)", log_n, again
    yield (
        f"frequencies of each row's own length ({', '.join(dict.fromkeys(dynamic))})",
        bool(dynamic),
        "evaluate it here, or train with a static variant",
    )
    by_head = any(len(set(layer)) > 1 for layer in heads)
    yield "frequencies of each head's own (a rotary pattern over heads)", by_head, again


def _layers(pattern: Any, num_layers: int) -> list[tuple[Rotary, ...]]:
    """The variants of each layer's heads."""
    layers = repeat_pattern(pattern, num_layers, "num_layers")
    return [layer if isinstance(layer, tuple) else (layer,) for layer in layers]


def variants_by_layer(config: ModelConfig) -> list[Rotary]:
    """One variant a layer, of a model whose heads are alike."""
    return [layer[0] for layer in _layers(config.rotary, config.num_layers)]


def windows_by_layer(config: ModelConfig) -> tuple[int | None, ...]:
    """Each layer's window."""
    return repeat_pattern(config.window, config.num_layers, "num_layers")


def _lacks(architecture: Architecture, config: ModelConfig) -> Iterator[str]:
    """Differences of a model from those of a class."""
    for name, has, can in (
        ("mla", config.mla is not None, architecture.mla),
        ("qk_norm", config.qk_norm, architecture.qk_norm),
        ("qkv_bias", config.qkv_bias, architecture.qkv_bias),
    ):
        if has != can:
            yield f"it {'has' if has else 'lacks'} model.{name}"
    windows, variants = windows_by_layer(config), variants_by_layer(config)
    sizes = {window for window in windows if window is not None}
    if len(sizes) > 1:
        yield f"windows of {len(sizes)} sizes"
    elif sizes and architecture.windows == "none":
        yield "model.window"
    elif sizes and None in windows and architecture.windows == "all":
        yield "a window in some layers only"
    if architecture.layout == "half" and any(_has_own_scale(v, config) for v in variants):
        yield "a scale of their own for features that stay (Phi-4-mini's)"
    if wrong := _ropes_wrong(architecture, variants, windows):
        yield wrong
    if architecture.model_type == "llama" and config.embed_dim % config.num_heads:
        yield f"embed_dim={config.embed_dim} is no multiple of num_heads={config.num_heads}"
    if architecture.tied_to_heads and config.head_dim * config.num_heads != config.embed_dim:
        yield f"head_dim={config.head_dim} is not embed_dim / num_heads"
    if architecture.mla and config.norm_epsilon != LATENT_EPSILON:
        yield (
            f"norm_epsilon={config.norm_epsilon:g}, and DeepSeek's norms of latents have "
            f"{LATENT_EPSILON:g}: train with model.norm_epsilon=1e-6"
        )


def _has_own_scale(variant: Rotary, config: ModelConfig) -> bool:
    """True if features of a head that do not turn have another scale than those that do."""
    stays = (variant.inv_freq(config.rope_head_dim) == 0).any()
    return bool(stays) and variant.logit_scale != variant.unrotated_logit_scale


def _ropes_wrong(architecture: Architecture, variants: list[Rotary], windows: Any) -> str:
    kinds = set(variants)
    if len(kinds) == 1:
        return ""
    if architecture.ropes == "one":
        return "rotation that differs by layer"
    if architecture.ropes == "or none":
        rotating = {kind for kind in kinds if not isinstance(kind, Nope)}
        return "" if len(rotating) == 1 else f"{len(rotating)} kinds of rotation"
    of_windows = {
        (window is None, variant) for window, variant in zip(windows, variants, strict=True)
    }
    if len(of_windows) > 2 or len({is_full for is_full, _ in of_windows}) < len(of_windows):
        return "rotation that differs between layers of one kind of window"
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Entries of a config.json beside the model's own sizes.

    Attributes:
      context: trained context, tokens.
      dtype: of the tensors, as numpy names it.
      bos_id, eos_id: None without a tokenizer.
      rope_type: the only one to be written; None: whatever fits.
    """

    context: int
    dtype: str = "float32"
    bos_id: int | None = None
    eos_id: int | None = None
    rope_type: str | None = None


def config_json(architecture: Architecture, config: ModelConfig, facts: Facts) -> dict[str, Any]:
    """The config.json of a model that fits.

    Raises:
      ValueError: if its rotation is not of the `rope_type` wanted.
    """
    written: dict[str, Any] = {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.embed_dim,
        "intermediate_size": config.mlp_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": facts.context,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "bos_token_id": facts.bos_id,
        "eos_token_id": facts.eos_id,
        "pad_token_id": None,
        "use_cache": True,
        # transformers 5 reads the first, version 4 the second.
        "dtype": facts.dtype,
        "torch_dtype": facts.dtype,
        **_ropes(architecture, config, facts),
        **_windows(architecture, config),
    }
    if config.mla is not None:
        written |= _latent(config)
    if architecture.model_type == "mellum":
        # A mixture-of-experts class, of which no layer is one.
        written["mlp_layer_types"] = ["dense"] * config.num_layers
    return written


def _ropes(architecture: Architecture, config: ModelConfig, facts: Facts) -> dict[str, Any]:
    head = Head(config.rope_head_dim, facts.context, architecture.mla)
    variants, windows = variants_by_layer(config), windows_by_layer(config)

    def parameters(variant: Rotary) -> dict[str, Any]:
        partial = architecture.layout == "partial"
        return rotary_config.rope_parameters(
            variant, head, rope_type=facts.rope_type, partial=partial
        )

    if architecture.ropes == "by window":
        # Version 4 has no such class: there is nothing to say to it.
        kinds = {
            _kind(w): parameters(variant) for w, variant in zip(windows, variants, strict=True)
        }
        return {"rope_parameters": kinds}
    rotating = [rotary for rotary in variants if not isinstance(rotary, Nope)] or variants
    keys = rotary_config.both_styles(parameters(rotating[0]))
    if architecture.ropes == "or none":
        keys["no_rope_layers"] = [int(not isinstance(rotary, Nope)) for rotary in variants]
    if architecture.layout == "partial":
        # Version 4 takes Phi-3's from here.
        original = keys["rope_parameters"].get("original_max_position_embeddings", facts.context)
        keys["original_max_position_embeddings"] = original
    return keys


def _kind(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _windows(architecture: Architecture, config: ModelConfig) -> dict[str, Any]:
    windows = windows_by_layer(config)
    size = next((window for window in windows if window is not None), None)
    if architecture.windows == "none":
        return {}
    keys: dict[str, Any] = {"sliding_window": size}
    if architecture.windows == "by layer":
        keys |= {
            "use_sliding_window": size is not None,
            "layer_types": [_kind(window) for window in windows],
            # What decides where a reader does not know layer_types.
            "max_window_layers": windows.index(size) if size is not None else config.num_layers,
        }
    return keys


def _latent(config: ModelConfig) -> dict[str, Any]:
    mla = config.mla
    assert mla is not None
    return {
        "kv_lora_rank": mla.kv_lora_rank,
        "q_lora_rank": mla.q_lora_rank,
        "qk_nope_head_dim": mla.qk_nope_head_dim,
        "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim,
        "head_dim": mla.qk_rope_head_dim,
        "rope_interleave": True,
        # A mixture-of-experts class, of which all layers are dense.
        "first_k_dense_replace": config.num_layers,
        "num_nextn_predict_layers": 0,
    }
