"""Independent reference: transformers' functions restated in numpy.

Logits come from a folder's tensors and its config.json, frequencies from
`model.rotary.rope_parameters`. Nothing here reads our model or our variants. Our logits are
compared with these where transformers is not installed. Logits are computed in float32 as in
transformers, except for the angles, which are float64: those of transformers are 0.06 rad off at a
million tokens. The same functions in float64 measure the rounding of float32. One layer's tensors
are in memory at a time.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from interop.tensors import Tensors
from model.rotary.base import HfHead
from model.rotary.rope_parameters import Scales, compute_frequencies, read_rope

_QUERIES = 256  # rows of attention weights in memory at once
_VOCABULARY = 2**14  # rows of the output matrix converted at once


def compute_logits(
    tensors: Tensors,
    config: Mapping[str, Any],
    tokens_T,
    positions_T,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Return the logits `[T, V]` of one row.

    Args:
      tensors: tensors of the folder.
      config: its config.json.
      tokens_T: token ids.
      positions_T: position of each token; a token attends to those before it in the row.
      dtype: dtype of the computation: float32, or float64 to measure the rounding of float32.
    """

    def read(name: str) -> np.ndarray:
        return tensors.read(name).astype(dtype)

    names = _NEOX if config["model_type"] == "gpt_neox" else _LLAMA
    embedding = tensors.read(f"{names.embedding}.weight")
    x_TD = embedding[tokens_T].astype(dtype)
    if _is_gemma(config):
        x_TD *= x_TD.dtype.type(math.sqrt(config["hidden_size"]))
    for layer in range(config["num_hidden_layers"]):
        prefix = f"{names.layers}.{layer}."
        known = [name for name in tensors.known if name.startswith(prefix)]
        weights = {name.removeprefix(prefix).removesuffix(".weight"): read(name) for name in known}
        x_TD = _layer(_Layer(config, layer, weights), x_TD, positions_T)
    bias = read(f"{names.norm}.bias") if f"{names.norm}.bias" in tensors.known else 0
    final = _norm(config, x_TD, read(f"{names.norm}.weight"), bias)
    output = embedding
    if not config["tie_word_embeddings"]:
        output = tensors.read(f"{names.output}.weight")
    logits_TV = np.empty((len(final), len(output)), dtype)
    for start in range(0, len(output), _VOCABULARY):
        rows = slice(start, start + _VOCABULARY)
        logits_TV[:, rows] = final @ output[rows].astype(dtype).T
    return logits_TV


class _Names(NamedTuple):
    """Names of the tensors outside of layers, and the prefix of layers."""

    embedding: str
    layers: str
    norm: str
    output: str


_LLAMA = _Names("model.embed_tokens", "model.layers", "model.norm", "lm_head")
_NEOX = _Names("gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm", "embed_out")


def _is_gemma(config: Mapping[str, Any]) -> bool:
    return config["model_type"] == "gemma3_text"


class _Layer:
    """Config and tensors of one layer."""

    def __init__(self, config: Mapping[str, Any], number: int, tensors: Mapping[str, Any]):
        self.config, self.tensors = config, tensors
        kinds = config.get("layer_types")
        self.kind = kinds[number] if kinds else None
        windowed = self.kind == "sliding_attention" or (
            kinds is None and config["model_type"] in ("mistral", "phi3")
        )
        self.window = config.get("sliding_window") if windowed else None
        self.rotates = (
            bool(config["no_rope_layers"][number]) if "no_rope_layers" in config else True
        )

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        """Return x times a weight `[out, in]`, plus the bias if there is one."""
        out = x @ self.tensors[name].T
        bias = self.tensors.get(f"{name}.bias")
        return out if bias is None else out + bias

    def norm_heads(self, name: str, x_TNH: np.ndarray) -> np.ndarray:
        """Normalize queries or keys, over as many features as the norm has weights."""
        weight = self.tensors[f"self_attn.{name}_norm"]
        x = x_TNH.reshape(len(x_TNH), -1, weight.size)
        return _norm(self.config, x, weight).reshape(x_TNH.shape)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        """Normalize, if the layer has this norm."""
        if name not in self.tensors:
            return x
        return _norm(self.config, x, self.tensors[name], self.tensors.get(f"{name}.bias", 0))

    def frequencies(self, length: int = 0) -> tuple[np.ndarray, Scales]:
        """Return frequencies and scales for rows of `length` tokens."""
        mla = "kv_lora_rank" in self.config
        head_dim = self.config["qk_rope_head_dim" if mla else "head_dim"]
        head = HfHead(head_dim, self.config["max_position_embeddings"], mla)
        return compute_frequencies(read_rope(self.config, self.kind), head, length)

    def cos_sin(self, positions_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return cosines and sines, float64 `[T, 1, R]`, multiplied by the attention factor."""
        inv_freq_R, scales = self.frequencies(int(positions_T.max()) + 1)
        angles_TR = positions_T[:, None].astype(np.float64) * inv_freq_R
        factor = math.sqrt(scales.rotated / scales.unrotated)
        cos, sin = (factor * f(angles_TR)[:, None] for f in (np.cos, np.sin))
        return cos, sin


def _rms_norm(x, weight, epsilon: float) -> np.ndarray:
    return weight * (x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(epsilon)))


def _norm(config: Mapping[str, Any], x, weight, bias: Any = 0) -> np.ndarray:
    """Apply the class's kind of norm."""
    if "layer_norm_eps" in config:
        return _rms_norm(x - x.mean(-1, keepdims=True), weight, config["layer_norm_eps"]) + bias
    return _rms_norm(x, 1 + weight if _is_gemma(config) else weight, config["rms_norm_eps"])


def _layer(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    attend = _latent_attention if "kv_lora_rank" in layer.config else _attention
    out_TD = attend(layer, layer.norm("input_layernorm", x_TD), positions_T)
    mlp_norm = "post_attention_layernorm"
    if "post_feedforward_layernorm" in layer.tensors:  # norms after attention and MLP
        out_TD = layer.norm(mlp_norm, out_TD)
        mlp_norm = "pre_feedforward_layernorm"
    sum_TD = x_TD + out_TD
    mlp_TD = _mlp(
        layer,
        layer.norm(mlp_norm, x_TD if layer.config.get("use_parallel_residual") else sum_TD),
    )
    return sum_TD + layer.norm("post_feedforward_layernorm", mlp_TD)


def _gelu(x: np.ndarray, *, tanh: bool) -> np.ndarray:
    if tanh:
        share = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    else:
        share = np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2))
    return (x * (1 + share) / 2).astype(x.dtype)


def _mlp(layer: _Layer, x_TD: np.ndarray) -> np.ndarray:
    if "mlp.dense_h_to_4h" in layer.tensors:
        tanh = layer.config["hidden_act"] != "gelu"
        hidden = _gelu(layer.linear("mlp.dense_h_to_4h", x_TD), tanh=tanh)
        return layer.linear("mlp.dense_4h_to_h", hidden)
    if "mlp.gate_up_proj" in layer.tensors:
        gate, up = np.split(layer.linear("mlp.gate_up_proj", x_TD), 2, axis=-1)
    else:
        gate, up = (layer.linear(f"mlp.{name}_proj", x_TD) for name in ("gate", "up"))
    with np.errstate(over="ignore"):  # exp overflows for a very negative gate; the result is 0
        gate = _gelu(gate, tanh=True) if _is_gemma(layer.config) else gate / (1 + np.exp(-gate))
    return layer.linear("mlp.down_proj", gate * up)


def _rotate_half(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate pairs (i, i + R) of the first 2 R features."""
    R = cos.shape[-1]
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    first, second, rest = x[..., :R], x[..., R : 2 * R], x[..., 2 * R :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def _attention(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    config, H = layer.config, layer.config["head_dim"]
    if "attention.query_key_value" in layer.tensors:
        fused = layer.linear("attention.query_key_value", x_TD)
        q_k_v = np.split(fused.reshape(len(x_TD), -1, 3 * H), 3, axis=-1)
    elif "self_attn.qkv_proj" in layer.tensors:
        query_size = config["num_attention_heads"] * H
        ends = [query_size, query_size + config["num_key_value_heads"] * H]
        q_k_v = np.split(layer.linear("self_attn.qkv_proj", x_TD), ends, axis=-1)
    else:
        q_k_v = [layer.linear(f"self_attn.{name}_proj", x_TD) for name in "qkv"]
    q_TNH, k_SKH, v_SKH = (x.reshape(len(x_TD), -1, H) for x in q_k_v)
    if "self_attn.q_norm" in layer.tensors:
        q_TNH, k_SKH = layer.norm_heads("q", q_TNH), layer.norm_heads("k", k_SKH)
    if layer.rotates:
        cos, sin = layer.cos_sin(positions_T)
        q_TNH, k_SKH = _rotate_half(q_TNH, cos, sin), _rotate_half(k_SKH, cos, sin)
    scale = 1 / math.sqrt(config.get("query_pre_attn_scalar", H))
    out = _attend(q_TNH * x_TD.dtype.type(scale), k_SKH, v_SKH, layer.window)
    is_neox = "attention.dense" in layer.tensors
    return layer.linear("attention.dense" if is_neox else "self_attn.o_proj", out)


def _latent_attention(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    config, T = layer.config, len(x_TD)
    H, P, U = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if config.get("q_lora_rank") is None:
        q_TX = layer.linear("self_attn.q_proj", x_TD)
    else:
        latent = layer.linear("self_attn.q_a_proj", x_TD)
        latent = _rms_norm(latent, layer.tensors["self_attn.q_a_layernorm"], 1e-6)
        q_TX = layer.linear("self_attn.q_b_proj", latent)
    q_TNX = q_TX.reshape(T, -1, H + P)
    both = layer.linear("self_attn.kv_a_proj_with_mqa", x_TD)
    latent, k_rope = both[:, : config["kv_lora_rank"]], both[:, config["kv_lora_rank"] :]
    latent = _rms_norm(latent, layer.tensors["self_attn.kv_a_layernorm"], 1e-6)
    k_v = layer.linear("self_attn.kv_b_proj", latent).reshape(T, -1, H + U)
    cos, sin = layer.cos_sin(positions_T)

    def rotate(x: np.ndarray) -> np.ndarray:
        """Rotate pairs (2 i, 2 i + 1), unless the file has them as (i, i + R)."""
        if not config.get("rope_interleave", True):
            return _rotate_half(x, cos, sin)
        even, odd = x[..., 0::2], x[..., 1::2]
        return _rotate_half(np.concatenate([even, odd], axis=-1), cos, sin)

    q_TNX = np.concatenate([q_TNX[..., :H], rotate(q_TNX[..., H:])], axis=-1)
    k_rope = np.broadcast_to(rotate(k_rope[:, None]), (T, k_v.shape[1], P))
    k_SNX = np.concatenate([k_v[..., :H], k_rope], axis=-1)
    scale = x_TD.dtype.type(layer.frequencies()[1].unrotated / math.sqrt(H + P))
    return layer.linear("self_attn.o_proj", _attend(q_TNX * scale, k_SNX, k_v[..., H:], None))


def _attend(q_TNH, k_SKH, v_SKU, window: int | None) -> np.ndarray:
    """Return softmax(q k) v, `[T, N U]`: causal, within `window` tokens if there is a window."""
    T, N, _ = q_TNH.shape
    k_NHS = np.repeat(k_SKH, N // k_SKH.shape[1], axis=1).transpose(1, 2, 0)
    v_NSU = np.repeat(v_SKU, N // v_SKU.shape[1], axis=1).transpose(1, 0, 2)
    out_TNU = np.empty((T, N, v_NSU.shape[2]), v_NSU.dtype)
    for start in range(0, T, _QUERIES):
        end = min(start + _QUERIES, T)
        weights_NTS = q_TNH[start:end].transpose(1, 0, 2) @ k_NHS[..., :end]
        distance_TS = np.arange(start, end)[:, None] - np.arange(end)
        visible_TS = (distance_TS >= 0) & (distance_TS < (window or T))
        weights_NTS = np.where(visible_TS, weights_NTS, -np.inf)
        weights_NTS = np.exp(weights_NTS - weights_NTS.max(axis=-1, keepdims=True))
        weights_NTS /= weights_NTS.sum(axis=-1, keepdims=True)
        out_TNU[start:end] = (weights_NTS @ v_NSU[:, :end]).transpose(1, 0, 2)
    return out_TNU.reshape(T, -1)
