"""transformers' functions restated in numpy: the logits that a folder's files and config.json give.

What a class computes is read from config.json and the tensors' own names and shapes, and from
nothing of ours: it is what our logits are compared with where transformers is not installed.
Float32 as there, but for the rotation, whose angles are float64: transformers' own are 0.06 rad off
at a million tokens. The same functions in float64 show how much of a difference is rounding. One
layer's tensors are in memory at a time.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from interop import rotary_config
from interop.rotary_config import Head
from interop.tensors import Tensors

_QUERIES = 256  # at a time: as many rows of attention weights exist at once
_VOCABULARY = 2**14  # rows of the output matrix that are converted at once


def logits(
    folder_tensors: Tensors,
    config: Mapping[str, Any],
    tokens_T,
    positions_T,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Return the logits `[T, V]` of one row, computed in `dtype`.

    Args:
      folder_tensors: of the folder.
      config: its config.json.
      tokens_T: ids.
      positions_T: where each stands; a token sees those before it in the row.
      dtype: float32, or float64 to measure the rounding of float32.
    """

    def read(name: str) -> np.ndarray:
        return folder_tensors.read(name).astype(dtype)

    embedding = folder_tensors.read("model.embed_tokens.weight")
    x_TD = embedding[tokens_T].astype(dtype)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        names = [name for name in folder_tensors.known if name.startswith(prefix)]
        weights = {name.removeprefix(prefix).removesuffix(".weight"): read(name) for name in names}
        x_TD = _layer(_Layer(config, layer, weights), x_TD, positions_T)
    final = _rms_norm(x_TD, read("model.norm.weight"), config["rms_norm_eps"])
    tied = config["tie_word_embeddings"]
    output = embedding if tied else folder_tensors.read("lm_head.weight")
    logits_TV = np.empty((len(final), len(output)), dtype)
    for start in range(0, len(output), _VOCABULARY):
        rows = slice(start, start + _VOCABULARY)
        logits_TV[:, rows] = final @ output[rows].astype(dtype).T
    return logits_TV


class _Layer:
    """The config and the tensors of one layer."""

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
        """x times a weight `[out, in]`, with its bias if it has one."""
        out = x @ self.tensors[name].T
        bias = self.tensors.get(f"{name}.bias")
        return out if bias is None else out + bias

    def cos_sin(self, positions_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Float64 `[T, 1, R]`, the attention factor in them."""
        latent = "kv_lora_rank" in self.config
        head_dim = self.config["qk_rope_head_dim" if latent else "head_dim"]
        rope = rotary_config.of_config(self.config, self.kind)
        head = Head(head_dim, self.config["max_position_embeddings"], latent)
        length = int(positions_T.max()) + 1
        inv_freq_R, scales = rotary_config.frequencies(rope, head, length)
        angles_TR = positions_T[:, None].astype(np.float64) * inv_freq_R
        factor = math.sqrt(scales.rotated / scales.rest)
        cos, sin = (factor * f(angles_TR)[:, None] for f in (np.cos, np.sin))
        return cos, sin

    def everywhere(self) -> float:
        """DeepSeek's factor on all logits, besides 1 / sqrt(head size)."""
        rope = rotary_config.of_config(self.config)
        context = self.config["max_position_embeddings"]
        head = Head(self.config["qk_rope_head_dim"], context, True)
        return rotary_config.frequencies(rope, head)[1].rest


def _rms_norm(x, weight, epsilon: float) -> np.ndarray:
    return weight * (x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(epsilon)))


def _layer(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    epsilon = layer.config["rms_norm_eps"]
    normed = _rms_norm(x_TD, layer.tensors["input_layernorm"], epsilon)
    attend = _latent_attention if "kv_lora_rank" in layer.config else _attention
    x_TD = x_TD + attend(layer, normed, positions_T)
    normed = _rms_norm(x_TD, layer.tensors["post_attention_layernorm"], epsilon)
    if "mlp.gate_up_proj" in layer.tensors:
        gate, up = np.split(layer.linear("mlp.gate_up_proj", normed), 2, axis=-1)
    else:
        gate, up = (layer.linear(f"mlp.{name}_proj", normed) for name in ("gate", "up"))
    with np.errstate(over="ignore"):  # exp of a gate far below 0: the share is 0
        silu = gate / (1 + np.exp(-gate))
    return x_TD + layer.linear("mlp.down_proj", silu * up)


def _rotate_half(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The first 2 R features, i with i + R; those behind them stay."""
    R = cos.shape[-1]
    cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
    first, second, rest = x[..., :R], x[..., R : 2 * R], x[..., 2 * R :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def _attention(layer: _Layer, x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    config, H = layer.config, layer.config["head_dim"]
    if "self_attn.qkv_proj" in layer.tensors:
        query_size = config["num_attention_heads"] * H
        places = [query_size, query_size + config["num_key_value_heads"] * H]
        q_k_v = np.split(layer.linear("self_attn.qkv_proj", x_TD), places, axis=-1)
    else:
        q_k_v = [layer.linear(f"self_attn.{name}_proj", x_TD) for name in "qkv"]
    q_TNH, k_SKH, v_SKH = (x.reshape(len(x_TD), -1, H) for x in q_k_v)
    if "self_attn.q_norm" in layer.tensors:
        q_TNH = _rms_norm(q_TNH, layer.tensors["self_attn.q_norm"], config["rms_norm_eps"])
        k_SKH = _rms_norm(k_SKH, layer.tensors["self_attn.k_norm"], config["rms_norm_eps"])
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
        """Rotate pairs of features 2i and 2i + 1."""
        if not config.get("rope_interleave", True):
            return _rotate_half(x, cos, sin)
        even, odd = x[..., 0::2], x[..., 1::2]
        return _rotate_half(np.concatenate([even, odd], axis=-1), cos, sin)

    q_TNX = np.concatenate([q_TNX[..., :H], rotate(q_TNX[..., H:])], axis=-1)
    k_rope = np.broadcast_to(rotate(k_rope[:, None]), (T, k_v.shape[1], P))
    k_SNX = np.concatenate([k_v[..., :H], k_rope], axis=-1)
    scale = x_TD.dtype.type(layer.everywhere() / math.sqrt(H + P))
    return layer.linear("self_attn.o_proj", _attend(q_TNX * scale, k_SNX, k_v[..., H:], None))


def _attend(q_TNH, k_SKH, v_SKU, window: int | None) -> np.ndarray:
    """softmax(q k) v over what comes no later and, of a window, is not too far back."""
    T, N, _ = q_TNH.shape
    k_NHS = np.repeat(k_SKH, N // k_SKH.shape[1], axis=1).transpose(1, 2, 0)
    v_NSU = np.repeat(v_SKU, N // v_SKU.shape[1], axis=1).transpose(1, 0, 2)
    out_TNU = np.empty((T, N, v_NSU.shape[2]), v_NSU.dtype)
    for start in range(0, T, _QUERIES):
        end = min(start + _QUERIES, T)
        weights_NTS = q_TNH[start:end].transpose(1, 0, 2) @ k_NHS[..., :end]
        distance_TS = np.arange(start, end)[:, None] - np.arange(end)
        seen_TS = (distance_TS >= 0) & (distance_TS < (window or T))
        weights_NTS = np.where(seen_TS, weights_NTS, -np.inf)
        weights_NTS = np.exp(weights_NTS - weights_NTS.max(axis=-1, keepdims=True))
        weights_NTS /= weights_NTS.sum(axis=-1, keepdims=True)
        out_TNU[start:end] = (weights_NTS @ v_NSU[:, :end]).transpose(1, 0, 2)
    return out_TNU.reshape(T, -1)
