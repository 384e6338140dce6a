"""The mapping between our parameters and a Hugging Face folder's tensors, used in both directions.

An `Entry` is one tensor of the folder and our arrays that it holds. Its two functions are exact
inverses: they transpose, reshape, split and reorder, and compute nothing. Our projections are
`[in, heads, features]`, theirs `[heads x features, in]`.

Which features of a head form a pair depends on the format (`Layout`):

    half         i and i + H/2: ours, and transformers' for Llama and most others
    partial      i and i + R/2 among the first R features; the others do not rotate: Phi-3
    interleaved  2i and 2i + 1: Meta's own files, and DeepSeek's rotated part
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from ropewalk.model.config import ModelConfig

Layout = Literal["half", "partial", "interleaved"]
Fused = Literal["no", "rows", "heads", "pack", "pack, unit output"]


class Part(NamedTuple):
    """One of our arrays, as rows of a tensor.

    Attributes:
      name: of our array, from `checkpoint.leaves_by_name`. Arrays of blocks are those of one layer,
        without the leading axis.
      inputs: how many leading axes of our array are inputs, which are the columns of the tensor; 0
        for embeddings and vectors.
      shape: of our array, -1 for one axis that follows from the tensor; None: that of the rows.
      order: our index of each feature of a head in the order of the rows; None: the same order.
    """

    name: str
    inputs: int = 0
    shape: tuple[int, ...] | None = None
    order: np.ndarray | None = None

    def to_rows(self, array: np.ndarray) -> np.ndarray:
        """Return the rows of our array."""
        if self.inputs:
            array = array.reshape(math.prod(array.shape[: self.inputs]), -1).T
        elif self.shape is not None:
            array = array.ravel()
        return array if self.order is None else _reorder(array, self.order)

    def from_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return our array; the inverse of `to_rows`."""
        if self.order is not None:
            rows = _reorder(rows, np.argsort(self.order))
        array = rows.T if self.inputs else rows
        return array if self.shape is None else array.reshape(self.shape)


def _reorder(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Reorder the rows of each head."""
    return rows.reshape(-1, len(order), *rows.shape[1:])[:, order].reshape(rows.shape)


class Entry(NamedTuple):
    """One tensor of a Hugging Face folder and our arrays that it holds.

    Attributes:
      hf_name: name of the tensor; `{layer}` stands for the number of a layer.
      parts: our arrays.
      sizes: number of rows of each part in a group; empty for one part.
      groups: the rows are this many groups, one after another, each with rows of every part.
      has_unit_rows: the model scales the rows to length 1 when it reads them, as
        `torch.nn.functional.normalize` in Baichuan 2's NormHead. Written rows have length 1
        already.
    """

    hf_name: str
    parts: tuple[Part, ...]
    sizes: tuple[int, ...] = ()
    groups: int = 1
    has_unit_rows: bool = False

    @property
    def ours(self) -> tuple[str, ...]:
        """Names of our arrays."""
        return tuple(part.name for part in self.parts)

    @property
    def is_stacked(self) -> bool:
        """True if there is one tensor per layer."""
        return "{layer}" in self.hf_name

    def names(self, num_layers: int) -> list[str]:
        """Return the names of the tensors of all layers."""
        layers = range(num_layers) if self.is_stacked else (0,)
        return [self.hf_name.format(layer=layer) for layer in layers]

    def to_hf(self, *arrays: np.ndarray) -> np.ndarray:
        """Return the tensor that holds our arrays."""
        rows = [part.to_rows(x) for part, x in zip(self.parts, arrays, strict=True)]
        if len(rows) == 1:
            return rows[0]
        columns = rows[0].shape[1:]
        grouped = [x.reshape(self.groups, -1, *columns) for x in rows]
        return np.concatenate(grouped, axis=1).reshape(-1, *columns)

    def from_hf(self, tensor: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return our arrays; the inverse of `to_hf`, but for the scale of `has_unit_rows`."""
        if self.has_unit_rows:
            rows = tensor.astype(np.float32)
            lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
            tensor = (rows / lengths).astype(tensor.dtype)
        columns = tensor.shape[1:]
        grouped = tensor.reshape(self.groups, -1, *columns)
        split = np.split(grouped, np.cumsum(self.sizes)[:-1], axis=1)
        return tuple(
            part.from_rows(x.reshape(-1, *columns))
            for part, x in zip(self.parts, split, strict=True)
        )


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


def _single(hf_name: str, name: str, *part, **more) -> Entry:
    return Entry(hf_name, (Part(name, *part),), **more)


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
        return _neox_entries(config, layout)
    attention = _latent if config.mla is not None else _attention
    layer = "model.layers.{layer}."
    gate, up, down = (Part(f"blocks.mlp.{name}", 1) for name in ("gate", "up", "down"))
    both = Entry(f"{layer}mlp.gate_up_proj.weight", (gate, up), (config.mlp_dim,) * 2)
    separate = [Entry(f"{layer}mlp.{x}_proj.weight", (y,)) for x, y in (("gate", gate), ("up", up))]
    first, *other_norms = (
        _single(f"{layer}{name}layernorm.weight", f"blocks.{ours}norm.scale")
        for name, ours in _NORMS[config.norm_position]
    )
    table = [
        _single("model.embed_tokens.weight", "embedding"),
        first,
        *attention(config, layout, fused),
        *other_norms,
        *([both] if fused == "rows" else separate),
        Entry(f"{layer}mlp.down_proj.weight", (down,)),
        _single("model.norm.weight", "final_norm.scale"),
    ]
    is_unit = fused == "pack, unit output"
    output = _single("lm_head.weight", "output", has_unit_rows=is_unit)
    return table if config.tie_embeddings else [*table, output]


def rotary_dim(config: ModelConfig) -> int:
    """Return the number of features of a head that rotate in some layer."""
    inv_freq = config.position_table(2).inv_freq[..., : config.rope_head_dim // 2]
    pairs = np.flatnonzero(inv_freq.any(axis=(0, 1)))
    return 2 * (int(pairs[-1]) + 1) if len(pairs) else 0


def _query_key_value(config: ModelConfig, layout: Layout) -> tuple[Part, Part, Part]:
    H, K, ours = config.head_dim, config.kv_heads, "blocks.attention."
    order = feature_order(layout, H, rotary_dim(config))
    return (
        Part(f"{ours}query", 1, (-1, config.num_heads, H), order),
        Part(f"{ours}key", 1, (-1, K, H), order),
        Part(f"{ours}value", 1, (-1, K, H)),
    )


def _biases(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts of the biases of queries, keys and values."""
    return tuple(
        part._replace(name=f"{part.name}_bias", inputs=0, shape=part.shape and part.shape[1:])
        for part in parts
    )


def _attention(config: ModelConfig, layout: Layout, fused: Fused) -> list[Entry]:
    prefix, out = "model.layers.{layer}.self_attn.", "blocks.attention.out"
    N, K, H = config.num_heads, config.kv_heads, config.head_dim
    parts = _query_key_value(config, layout)

    def separate(suffix: str, parts: tuple[Part, ...]) -> list[Entry]:
        return [
            Entry(f"{prefix}{x}_{suffix}", (part,)) for x, part in zip("qkv", parts, strict=False)
        ]

    entries = separate("proj.weight", parts)
    if fused != "no":
        joined = "qkv_proj" if fused == "rows" else "W_pack"
        entries = [Entry(f"{prefix}{joined}.weight", parts, (N * H, K * H, K * H))]
    if config.qkv_bias:
        entries += separate("proj.bias", _biases(parts))
    if config.qk_norm:
        # A norm across heads scales the features of one head after another.
        names = (f"{part.name}_norm.scale" for part in parts[:2])
        norms = tuple(Part(name, order=parts[0].order) for name in names)
        entries += separate("norm.weight", norms)
    return [*entries, _single(f"{prefix}o_proj.weight", out, 2, (N, H, -1))]


def _neox_entries(config: ModelConfig, layout: Layout) -> list[Entry]:
    """Return the entries of all tensors of a GPT-NeoX."""
    layer, ours, N, H = "gpt_neox.layers.{layer}.", "blocks.", config.num_heads, config.head_dim

    def norm(hf_name: str, name: str) -> list[Entry]:
        names = (("weight", "scale"), ("bias", "bias"))
        return [_single(f"{hf_name}.{x}", f"{name}.{y}") for x, y in names]

    def product(hf_name: str, name: str, *part) -> list[Entry]:
        bias = _single(f"{layer}{hf_name}.bias", f"{ours}{name}_bias")
        return [_single(f"{layer}{hf_name}.weight", ours + name, *part), bias]

    weights = _query_key_value(config, layout)
    joined = f"{layer}attention.query_key_value."
    table = [
        _single("gpt_neox.embed_in.weight", "embedding"),
        *norm(f"{layer}input_layernorm", f"{ours}attention_norm"),
        Entry(f"{joined}weight", weights, (H, H, H), groups=N),
        Entry(f"{joined}bias", _biases(weights), (H, H, H), groups=N),
        *product("attention.dense", "attention.out", 2, (N, H, -1)),
        *norm(f"{layer}post_attention_layernorm", f"{ours}mlp_norm"),
        *product("mlp.dense_h_to_4h", "mlp.up", 1),
        *product("mlp.dense_4h_to_h", "mlp.down", 1),
        *norm("gpt_neox.final_layer_norm", "final_norm"),
    ]
    return table if config.tie_embeddings else [*table, _single("embed_out.weight", "output")]


def _latent(config: ModelConfig, layout: Layout, _: Fused) -> list[Entry]:
    """Return the entries of multi-head latent attention in DeepSeek's files."""
    mla, prefix, ours = config.mla, "model.layers.{layer}.self_attn.", "blocks.attention."
    assert mla is not None
    N, C = config.num_heads, mla.kv_lora_rank
    H, P, U = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
    rope = feature_order(layout, P, P)
    heads = (1, (-1, N, H + P), np.concatenate([np.arange(H), H + rope]))
    if mla.q_lora_rank is None:
        queries = [_single(f"{prefix}q_proj.weight", f"{ours}query", *heads)]
    else:
        queries = [
            _single(f"{prefix}q_a_proj.weight", f"{ours}query_down", 1),
            _single(f"{prefix}q_a_layernorm.weight", f"{ours}query_latent_norm.scale"),
            _single(f"{prefix}q_b_proj.weight", f"{ours}query_up", *heads),
        ]
    latent = (Part(f"{ours}latent_down", 1), Part(f"{ours}key_rope", 1, order=rope))
    ups = (Part(f"{ours}key_up", 1, (C, N, H)), Part(f"{ours}value_up", 1, (C, N, U)))
    return [
        *queries,
        Entry(f"{prefix}kv_a_proj_with_mqa.weight", latent, (C, P)),
        _single(f"{prefix}kv_a_layernorm.weight", f"{ours}latent_norm.scale"),
        Entry(f"{prefix}kv_b_proj.weight", ups, (H, U), groups=N),
        _single(f"{prefix}o_proj.weight", f"{ours}out", 2, (N, U, -1)),
    ]
