"""The mapping between our parameters and a Hugging Face folder's tensors, used in both directions.

An `Entry` is one tensor of the folder and our arrays that it holds. Its two functions are exact
inverses: they transpose, reshape, split and reorder, and compute nothing. Our projections are
`[in, heads, features]`, theirs `[heads x features, in]`.

Which features of a head form a pair depends on the format (`Layout`):

    half         i and i + H/2: ours, and transformers' for Llama and most others
    partial      i and i + R/2 among the first R features; the others do not rotate: Phi-3
    interleaved  2i and 2i + 1: Meta's own files, and DeepSeek's rotated part
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ropewalk.model.config import ModelConfig

Layout = Literal["half", "partial", "interleaved"]
Fused = Literal["no", "rows", "heads", "pack", "pack, unit output"]


class Entry(NamedTuple):
    """One tensor of a Hugging Face folder and our arrays that it holds.

    Attributes:
      hf_name: name of the tensor; `{layer}` stands for the number of a layer.
      ours: names of our arrays, from `checkpoint.leaves_by_name`. Arrays of blocks are those of
        one layer, without the leading axis.
      to_hf: function from our arrays to the tensor.
      from_hf: its inverse; of Baichuan 2's output layer, what the model makes of the tensor.
    """

    hf_name: str
    ours: tuple[str, ...]
    to_hf: Callable[..., np.ndarray]
    from_hf: Callable[[np.ndarray], tuple[np.ndarray, ...]]

    @property
    def is_stacked(self) -> bool:
        """True if there is one tensor per layer."""
        return "{layer}" in self.hf_name

    def names(self, num_layers: int) -> list[str]:
        """Return the names of the tensors of all layers."""
        layers = range(num_layers) if self.is_stacked else (0,)
        return [self.hf_name.format(layer=layer) for layer in layers]


def feature_order(layout: Layout, head_dim: int, rotary_dim: int) -> np.ndarray:
    """Return our index of each feature in the order of a layout, int `[head_dim]`.

    Args:
      layout: layout of the file.
      head_dim: features of a head that variants apply to.
      rotary_dim: how many of them rotate.
    """
    pairs = np.arange(head_dim).reshape(2, -1)  # column i: the features of pair i
    if layout == "interleaved":
        return pairs.T.ravel()
    if layout == "partial":
        return np.concatenate(
            [pairs[:, : rotary_dim // 2].ravel(), pairs[:, rotary_dim // 2 :].ravel()]
        )
    return pairs.ravel()


def _same(hf_name: str, ours: str) -> Entry:
    return Entry(hf_name, (ours,), lambda x: x, lambda x: (x,))


def _transposed(hf_name: str, ours: str) -> Entry:
    return Entry(hf_name, (ours,), lambda x: x.T, lambda x: (x.T,))


def _unit_rows(hf_name: str, ours: str) -> Entry:
    """Return the entry of an output layer whose rows the model scales to length 1 when it reads it.

    As `torch.nn.functional.normalize` in Baichuan 2's NormHead. Written rows have length 1 already.
    """

    def from_hf(x: np.ndarray) -> tuple[np.ndarray]:
        rows = x.astype(np.float32)
        lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return ((rows / lengths).astype(x.dtype),)

    return Entry(hf_name, (ours,), lambda x: x, from_hf)


def _norm(hf_name: str, ours: str, order: np.ndarray, heads: int) -> Entry:
    """Return the entry of a norm over the features of some heads, each in the same order."""
    order = (np.arange(heads)[:, None] * len(order) + order).ravel()
    back = np.argsort(order)
    return Entry(hf_name, (ours,), lambda x: x[order], lambda x: (x[back],))


def _heads(hf_name: str, ours: str, order: np.ndarray) -> Entry:
    """Return the entry of a matrix, `[D, N, H]` and `[N H, D]`, or a bias, `[N, H]` and `[N H]`.

    `order` is the `feature_order` of a head.
    """
    H, back = len(order), np.argsort(order)

    def to_hf(x: np.ndarray) -> np.ndarray:
        heads_NHx = np.moveaxis(x[..., order], 0, -1) if x.ndim == 3 else x[..., order]
        return heads_NHx.reshape(-1, *heads_NHx.shape[2:])

    def from_hf(x: np.ndarray) -> tuple[np.ndarray]:
        heads_NHx = x.reshape(-1, H, *x.shape[1:])[:, back]
        return (np.moveaxis(heads_NHx, -1, 0) if heads_NHx.ndim == 3 else heads_NHx,)

    return Entry(hf_name, (ours,), to_hf, from_hf)


def _out(hf_name: str, ours: str, head_dim: int) -> Entry:
    """Return the entry of the output projection, ours `[N, H, D]` and theirs `[D, N H]`."""
    return Entry(
        hf_name,
        (ours,),
        lambda x: x.reshape(-1, x.shape[-1]).T,
        lambda x: (x.T.reshape(-1, head_dim, x.shape[0]),),
    )


def _joined(hf_name: str, parts: Sequence[Entry], sizes: Sequence[int]) -> Entry:
    """Return the entry of a tensor that holds several others, of `sizes` rows each."""
    ends = np.cumsum(sizes)[:-1]

    def to_hf(*ours: np.ndarray) -> np.ndarray:
        return np.concatenate([part.to_hf(x) for part, x in zip(parts, ours, strict=True)])

    def from_hf(x: np.ndarray) -> tuple[np.ndarray, ...]:
        split = np.split(x, ends)
        return tuple(part.from_hf(rows)[0] for part, rows in zip(parts, split, strict=True))

    return Entry(hf_name, tuple(part.ours[0] for part in parts), to_hf, from_hf)


# Their names and ours, by position of the norms.
_NORMS = {
    "before": (("input_", "attention_"), ("post_attention_", "mlp_")),
    "after": (("post_attention_", "attention_out_"), ("post_feedforward_", "mlp_out_")),
    "both": (
        *(("input_", "attention_"), ("post_attention_", "attention_out_")),
        *(("pre_feedforward_", "mlp_"), ("post_feedforward_", "mlp_out_")),
    ),
}


def make_entries(config: ModelConfig, layout: Layout, fused: Fused = "no") -> list[Entry]:
    """Return the entries of all tensors of a model, in the order of the files.

    Args:
      config: the model. Of its rotary pattern only the number of rotated pairs matters.
      layout: layout of the features of a rotated head in the files.
      fused: which arrays are one tensor: queries, keys and values, and gate and up ("rows", Phi-3);
        or the query, key and value of one head after another ("heads", GPT-NeoX, whose other names
        differ too); or queries, keys and values only ("pack", Baichuan), beside an output layer
        whose rows the model scales to length 1 ("pack, unit output", Baichuan 2).
    """
    if fused == "heads":
        return _neox_entries(config, feature_order(layout, config.head_dim, rotary_dim(config)))
    attention = (
        _attention(config, layout, _JOINED.get(fused))
        if config.mla is None
        else _latent(config, layout)
    )
    mlp, ours = "model.layers.{layer}.mlp.", "blocks.mlp."
    gate = _transposed(f"{mlp}gate_proj.weight", f"{ours}gate")
    up = _transposed(f"{mlp}up_proj.weight", f"{ours}up")
    both = _joined(f"{mlp}gate_up_proj.weight", [gate, up], [config.mlp_dim] * 2)
    first, *other_norms = (
        _same(f"model.layers.{{layer}}.{name}layernorm.weight", f"blocks.{ours}norm.scale")
        for name, ours in _NORMS[config.norm_position]
    )
    table = [
        _same("model.embed_tokens.weight", "embedding"),
        first,
        *attention,
        *other_norms,
        *([both] if fused == "rows" else [gate, up]),
        _transposed(f"{mlp}down_proj.weight", f"{ours}down"),
        _same("model.norm.weight", "final_norm.scale"),
    ]
    output = _unit_rows if fused == "pack, unit output" else _same
    return table if config.tie_embeddings else [*table, output("lm_head.weight", "output")]


# Name of the projection that holds queries, keys and values.
_JOINED: dict[str, str] = {
    "rows": "qkv_proj",
    "pack": "W_pack",
    "pack, unit output": "W_pack",
}


def rotary_dim(config: ModelConfig) -> int:
    """Return the number of features of a head that rotate in some layer."""
    inv_freq = config.position_table(2).inv_freq[..., : config.rope_head_dim // 2]
    pairs = np.flatnonzero(inv_freq.any(axis=(0, 1)))
    return 2 * (int(pairs[-1]) + 1) if len(pairs) else 0


def _attention(config: ModelConfig, layout: Layout, joined: str | None) -> list[Entry]:
    prefix, ours = "model.layers.{layer}.self_attn.", "blocks.attention."
    N, K, H = config.num_heads, config.kv_heads, config.head_dim
    order, plain = feature_order(layout, H, rotary_dim(config)), np.arange(H)
    rotated = (("q", "query", order), ("k", "key", order), ("v", "value", plain))
    q_k_v = [
        _heads(f"{prefix}{x}_proj.weight", ours + name, features) for x, name, features in rotated
    ]
    if joined:
        q_k_v = [_joined(f"{prefix}{joined}.weight", q_k_v, [N * H, K * H, K * H])]
    if config.qkv_bias:
        q_k_v += [
            _heads(f"{prefix}{x}_proj.bias", f"{ours}{name}_bias", features)
            for x, name, features in rotated
        ]
    if config.qk_norm:
        # A norm across heads scales the features of one head after another.
        counts = (N, K) if config.qk_norm_across_heads else (1, 1)
        q_k_v += [
            _norm(f"{prefix}{x}_norm.weight", f"{ours}{name}_norm.scale", order, count)
            for (x, name, _), count in zip(rotated, counts, strict=False)
        ]
    return [*q_k_v, _out(f"{prefix}o_proj.weight", f"{ours}out", H)]


def _neox_entries(config: ModelConfig, order: np.ndarray) -> list[Entry]:
    """Return the entries of all tensors of a GPT-NeoX; `order` is the `feature_order` of a head."""
    layer, ours = "gpt_neox.layers.{layer}.", "blocks."

    def norm(hf_name: str, name: str) -> list[Entry]:
        return [_same(f"{hf_name}.{x}", f"{name}.{y}") for x, y in _SCALE_BIAS]

    def product(hf_name: str, name: str, weight: Callable[..., Entry], *more) -> list[Entry]:
        bias = _same(f"{layer}{hf_name}.bias", f"{ours}{name}_bias")
        return [weight(f"{layer}{hf_name}.weight", ours + name, *more), bias]

    table = [
        _same("gpt_neox.embed_in.weight", "embedding"),
        *norm(f"{layer}input_layernorm", f"{ours}attention_norm"),
        *(_by_head(f"{layer}attention.query_key_value.{x}", y, order) for x, y in _SUFFIXES),
        *product("attention.dense", "attention.out", _out, config.head_dim),
        *norm(f"{layer}post_attention_layernorm", f"{ours}mlp_norm"),
        *product("mlp.dense_h_to_4h", "mlp.up", _transposed),
        *product("mlp.dense_4h_to_h", "mlp.down", _transposed),
        *norm("gpt_neox.final_layer_norm", "final_norm"),
    ]
    return table if config.tie_embeddings else [*table, _same("embed_out.weight", "output")]


_SCALE_BIAS = (("weight", "scale"), ("bias", "bias"))
_SUFFIXES = (("weight", ""), ("bias", "_bias"))


def _by_head(hf_name: str, suffix: str, order: np.ndarray) -> Entry:
    """Return the entry of `[N 3 H, ...]`: query, key and value of one head after another."""
    orders, H = (order, order, np.arange(len(order))), len(order)
    names = (f"blocks.attention.{name}{suffix}" for name in ("query", "key", "value"))
    parts = [_heads("", name, features) for name, features in zip(names, orders, strict=True)]

    def to_hf(*ours: np.ndarray) -> np.ndarray:
        rows = [part.to_hf(x) for part, x in zip(parts, ours, strict=True)]
        by_head = np.stack([x.reshape(-1, H, *x.shape[1:]) for x in rows], axis=1)
        return by_head.reshape(-1, *by_head.shape[3:])

    def from_hf(x: np.ndarray) -> tuple[np.ndarray, ...]:
        by_head = np.moveaxis(x.reshape(-1, 3, H, *x.shape[1:]), 1, 0)
        rows = by_head.reshape(3, -1, *x.shape[1:])
        return tuple(part.from_hf(x)[0] for part, x in zip(parts, rows, strict=True))

    return Entry(hf_name, tuple(part.ours[0] for part in parts), to_hf, from_hf)


def _latent(config: ModelConfig, layout: Layout) -> list[Entry]:
    """Return the entries of multi-head latent attention in DeepSeek's files."""
    mla, prefix, ours = config.mla, "model.layers.{layer}.self_attn.", "blocks.attention."
    assert mla is not None
    H, P, U = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
    rope = feature_order(layout, P, P)
    order = np.concatenate([np.arange(H), H + rope])
    if mla.q_lora_rank is None:
        queries = [_heads(f"{prefix}q_proj.weight", f"{ours}query", order)]
    else:
        queries = [
            _transposed(f"{prefix}q_a_proj.weight", f"{ours}query_down"),
            _same(f"{prefix}q_a_layernorm.weight", f"{ours}query_latent_norm.scale"),
            _heads(f"{prefix}q_b_proj.weight", f"{ours}query_up", order),
        ]
    latent = _transposed("", f"{ours}latent_down")
    back = np.argsort(rope)
    key_rope = Entry("", (f"{ours}key_rope",), lambda x: x.T[rope], lambda x: (x[back].T,))
    return [
        *queries,
        _joined(f"{prefix}kv_a_proj_with_mqa.weight", [latent, key_rope], [mla.kv_lora_rank, P]),
        _same(f"{prefix}kv_a_layernorm.weight", f"{ours}latent_norm.scale"),
        _keys_and_values(f"{prefix}kv_b_proj.weight", (f"{ours}key_up", f"{ours}value_up"), H, U),
        _out(f"{prefix}o_proj.weight", f"{ours}out", U),
    ]


def _keys_and_values(hf_name: str, ours: tuple[str, str], H: int, U: int) -> Entry:
    """Return the entry of ours `[C, N, H]` and `[C, N, U]` in `[N (H + U), C]`, head by head."""

    def to_hf(key_CNH: np.ndarray, value_CNU: np.ndarray) -> np.ndarray:
        both_CNX = np.concatenate([key_CNH, value_CNU], axis=-1)
        return both_CNX.transpose(1, 2, 0).reshape(-1, both_CNX.shape[0])

    def from_hf(x: np.ndarray) -> tuple[np.ndarray, ...]:
        both_CNX = x.reshape(-1, H + U, x.shape[1]).transpose(2, 0, 1)
        return both_CNX[..., :H], both_CNX[..., H:]

    return Entry(hf_name, ours, to_hf, from_hf)
