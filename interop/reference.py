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
from typing import Any

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

    embedding = tensors.read("model.embed_tokens.weight")
    x_TD = embedding[tokens_T].astype(dtype)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        names = [name for name in tensors.known if name.startswith(prefix)]
        weights = {name.removeprefix(prefix).removesuffix(".weight"): read(name) for name in names}
        x_TD = _layer(_Layer(config, layer, weights), x_TD, positions_T)
    final = _rms_norm(x_TD, read("model.norm.weight"), config["rms_norm_eps"])
    output = embedding if config["tie_word_embeddings"] else tensors.read("lm_head.weight")
    logits_TV = np.empty((len(final), len(output)), dtype)
    for start in range(0, len(output), _VOCABULARY):
        rows = slice(start, start + _VOCABULARY)
        logits_TV[:, rows] = final @ output[rows].astype(dtype).T
    return logits_TV


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
        return _rms_norm(x, weight, self.config["rms_norm_eps"]).reshape(x_TNH.shape)

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


def _layer(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    epsilon = layer.config["rms_norm_eps"]
    attend = _latent_attention if "kv_lora_rank" in layer.config else _attention

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        return _rms_norm(x, layer.tensors[f"{name}_layernorm"], epsilon)

    if "post_feedforward_layernorm" in layer.tensors:  # norms after attention and MLP
        x_TD = x_TD + norm("post_attention", attend(layer, x_TD, positions_T))
        return x_TD + norm("post_feedforward", _mlp(layer, x_TD))
    x_TD = x_TD + attend(layer, norm("input", x_TD), positions_T)
    return x_TD + _mlp(layer, norm("post_attention", x_TD))


def _mlp(layer: _Layer, x_TD: np.ndarray) -> np.ndarray:
    if "mlp.gate_up_proj" in layer.tensors:
        gate, up = np.split(layer.linear("mlp.gate_up_proj", x_TD), 2, axis=-1)
    else:
        gate, up = (layer.linear(f"mlp.{name}_proj", x_TD) for name in ("gate", "up"))
    with np.errstate(over="ignore"):  # exp overflows for a very negative gate; the result is 0
        silu = gate / (1 + np.exp(-gate))
    return layer.linear("mlp.down_proj", silu * up)


def _rotate_half(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate pairs (i, i + R) of the first 2 R features."""
    R = cos.shape[-1]
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    first, second, rest = x[..., :R], x[..., R : 2 * R], x[..., 2 * R :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def _attention(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    config, H = layer.config, layer.config["head_dim"]
    if "self_attn.qkv_proj" in layer.tensors:
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
    out = _attend(q_TNH * x_TD.dtype.type(1 / math.sqrt(H)), k_SKH, v_SKH, layer.window)
    return layer.linear("self_attn.o_proj", out)


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
