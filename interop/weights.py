"""Our parameters and a Hugging Face folder's tensors: one table that export and import both walk.

An `Entry` is one tensor of theirs and what it holds of ours, with a pair of functions that are each
other's inverse, to the byte: they transpose, reshape, split and reorder, and compute nothing.
Ours are `[in, heads, features]`, theirs `[heads x features, in]`.

Which features of a head make a pair is the format's rule, and its order stands in `Layout`:

    half         i with i + H/2: ours, and that of transformers' Llama and its kin
    partial      i with i + R/2 among the first R features, then those that do not rotate: Phi-3
    interleaved  2i with 2i + 1: Meta's own files, and DeepSeek's rotated part
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from model.config import ModelConfig

Layout = Literal["half", "partial", "interleaved"]


class Entry(NamedTuple):
    """One tensor of theirs.

    Attributes:
      theirs: its name; `{layer}` stands for the number of a layer.
      ours: names of our leaves that it holds, as `experiment.digest.named` has them; leaves of
        blocks stand without the leading axis of layers here.
      to_hf: from arrays of ours, of one layer, to the tensor.
      from_hf: back again.
    """

    theirs: str
    ours: tuple[str, ...]
    to_hf: Callable[..., np.ndarray]
    from_hf: Callable[[np.ndarray], tuple[np.ndarray, ...]]

    @property
    def is_stacked(self) -> bool:
        """True if there is one a layer."""
        return "{layer}" in self.theirs


def feature_order(layout: Layout, head_dim: int, rotary_dim: int) -> np.ndarray:
    """Which feature of ours stands at each place of theirs; int `[head_dim]`.

    Args:
      layout: theirs.
      head_dim: features of a head that variants see.
      rotary_dim: of them, those that rotate.
    """
    pairs = np.arange(head_dim).reshape(2, -1)  # column i: the features of pair i
    if layout == "interleaved":
        return pairs.T.ravel()
    if layout == "partial":
        return np.concatenate(
            [pairs[:, : rotary_dim // 2].ravel(), pairs[:, rotary_dim // 2 :].ravel()]
        )
    return pairs.ravel()


class _Heads(NamedTuple):
    """Heads of one projection: ours `[D, N, H]`, `[N, H]` or `[H]`, theirs `[N H, D]` or flat.

    Attributes:
      order: of their features, as `feature_order` has it.
    """

    order: np.ndarray

    def matrix(self, ours: np.ndarray) -> np.ndarray:
        return ours[:, :, self.order].transpose(1, 2, 0).reshape(-1, ours.shape[0])

    def from_matrix(self, theirs: np.ndarray) -> np.ndarray:
        H = len(self.order)
        heads_NHD = theirs.reshape(-1, H, theirs.shape[1])[:, np.argsort(self.order)]
        return heads_NHD.transpose(2, 0, 1)

    def vector(self, ours: np.ndarray) -> np.ndarray:
        return ours[..., self.order].reshape(-1)

    def from_vector(self, theirs: np.ndarray) -> np.ndarray:
        return theirs.reshape(-1, len(self.order))[:, np.argsort(self.order)]


def _same(theirs: str, ours: str) -> Entry:
    return Entry(theirs, (ours,), lambda x: x, lambda x: (x,))


def _transposed(theirs: str, ours: str) -> Entry:
    return Entry(theirs, (ours,), lambda x: x.T, lambda x: (x.T,))


def _heads(theirs: str, ours: str, order: np.ndarray) -> Entry:
    heads = _Heads(order)
    return Entry(theirs, (ours,), heads.matrix, lambda x: (heads.from_matrix(x),))


def _bias(theirs: str, ours: str, order: np.ndarray) -> Entry:
    heads = _Heads(order)
    return Entry(theirs, (ours,), heads.vector, lambda x: (heads.from_vector(x),))


def _norm(theirs: str, ours: str, order: np.ndarray) -> Entry:
    heads = _Heads(order)
    return Entry(theirs, (ours,), heads.vector, lambda x: (heads.from_vector(x)[0],))


def _out(theirs: str, ours: str, head_dim: int) -> Entry:
    """Ours `[N, H, D]`, theirs `[D, N H]`."""
    return Entry(
        theirs,
        (ours,),
        lambda x: x.reshape(-1, x.shape[-1]).T,
        lambda x: (x.T.reshape(-1, head_dim, x.shape[0]),),
    )


def _joined(theirs: str, parts: Sequence[Entry], sizes: Sequence[int]) -> Entry:
    """Several entries in one tensor, one below the other: `sizes` rows each."""
    places = np.cumsum(sizes)[:-1]

    def to_hf(*ours: np.ndarray) -> np.ndarray:
        return np.concatenate([part.to_hf(x) for part, x in zip(parts, ours, strict=True)])

    def from_hf(x: np.ndarray) -> tuple[np.ndarray, ...]:
        split = np.split(x, places)
        return tuple(part.from_hf(rows)[0] for part, rows in zip(parts, split, strict=True))

    return Entry(theirs, tuple(part.ours[0] for part in parts), to_hf, from_hf)


def entries(config: ModelConfig, layout: Layout, *, fused: bool = False) -> list[Entry]:
    """Every tensor of a model, in the order in which they are written.

    Args:
      config: the model, whose rotary pattern is not read but for the pairs that rotate.
      layout: of the features of a rotated head in their format.
      fused: whether queries, keys and values are one tensor, and gate and up (Phi-3).
    """
    attention = _attention(config, layout, fused) if config.mla is None else _latent(config, layout)
    mlp, ours = "model.layers.{layer}.mlp.", "blocks.mlp."
    gate = _transposed(f"{mlp}gate_proj.weight", f"{ours}gate")
    up = _transposed(f"{mlp}up_proj.weight", f"{ours}up")
    both = _joined(f"{mlp}gate_up_proj.weight", [gate, up], [config.mlp_dim] * 2)
    layer = "model.layers.{layer}."
    table = [
        _same("model.embed_tokens.weight", "embedding"),
        _same(f"{layer}input_layernorm.weight", "blocks.attention_norm.scale"),
        *attention,
        _same(f"{layer}post_attention_layernorm.weight", "blocks.mlp_norm.scale"),
        *([both] if fused else [gate, up]),
        _transposed(f"{mlp}down_proj.weight", f"{ours}down"),
        _same("model.norm.weight", "final_norm.scale"),
    ]
    return table if config.tie_embeddings else [*table, _same("lm_head.weight", "output")]


def rotary_dim(config: ModelConfig) -> int:
    """Features of a head, of those that variants see, that rotate in some layer."""
    inv_freq = config.rotary_table(2).inv_freq[..., : config.rope_head_dim // 2]
    pairs = np.flatnonzero(inv_freq.any(axis=(0, 1)))
    return 2 * (int(pairs[-1]) + 1) if len(pairs) else 0


def _attention(config: ModelConfig, layout: Layout, fused: bool) -> list[Entry]:
    theirs, ours = "model.layers.{layer}.self_attn.", "blocks.attention."
    N, K, H = config.num_heads, config.kv_heads, config.head_dim
    order, plain = feature_order(layout, H, rotary_dim(config)), np.arange(H)
    rotated = (("q", "query", order), ("k", "key", order), ("v", "value", plain))
    q_k_v = [
        _heads(f"{theirs}{x}_proj.weight", ours + name, features) for x, name, features in rotated
    ]
    if fused:
        q_k_v = [_joined(f"{theirs}qkv_proj.weight", q_k_v, [N * H, K * H, K * H])]
    if config.qkv_bias:
        q_k_v += [
            _bias(f"{theirs}{x}_proj.bias", f"{ours}{name}_bias", features)
            for x, name, features in rotated
        ]
    if config.qk_norm:
        q_k_v += [
            _norm(f"{theirs}{x}_norm.weight", f"{ours}{name}_norm.scale", order)
            for x, name, _ in rotated[:2]
        ]
    return [*q_k_v, _out(f"{theirs}o_proj.weight", f"{ours}out", H)]


def _latent(config: ModelConfig, layout: Layout) -> list[Entry]:
    """Entries of multi-head latent attention, as DeepSeek's files have it."""
    mla, theirs, ours = config.mla, "model.layers.{layer}.self_attn.", "blocks.attention."
    assert mla is not None
    H, P, U = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim
    rope = feature_order(layout, P, P)
    order = np.concatenate([np.arange(H), H + rope])
    if mla.q_lora_rank is None:
        queries = [_heads(f"{theirs}q_proj.weight", f"{ours}query", order)]
    else:
        queries = [
            _transposed(f"{theirs}q_a_proj.weight", f"{ours}query_down"),
            _same(f"{theirs}q_a_layernorm.weight", f"{ours}query_latent_norm.scale"),
            _heads(f"{theirs}q_b_proj.weight", f"{ours}query_up", order),
        ]
    latent = _transposed("", f"{ours}latent_down")
    back = np.argsort(rope)
    key_rope = Entry("", (f"{ours}key_rope",), lambda x: x.T[rope], lambda x: (x[back].T,))
    return [
        *queries,
        _joined(f"{theirs}kv_a_proj_with_mqa.weight", [latent, key_rope], [mla.kv_lora_rank, P]),
        _same(f"{theirs}kv_a_layernorm.weight", f"{ours}latent_norm.scale"),
        _keys_and_values(f"{theirs}kv_b_proj.weight", (f"{ours}key_up", f"{ours}value_up"), H, U),
        _out(f"{theirs}o_proj.weight", f"{ours}out", U),
    ]


def _keys_and_values(theirs: str, ours: tuple[str, str], H: int, U: int) -> Entry:
    """Ours `[C, N, H]` and `[C, N, U]`, theirs `[N (H + U), C]`: head by head."""

    def to_hf(key_CNH: np.ndarray, value_CNU: np.ndarray) -> np.ndarray:
        both_CNX = np.concatenate([key_CNH, value_CNU], axis=-1)
        return both_CNX.transpose(1, 2, 0).reshape(-1, both_CNX.shape[0])

    def from_hf(x: np.ndarray) -> tuple[np.ndarray, ...]:
        both_CNX = x.reshape(-1, H + U, x.shape[1]).transpose(2, 0, 1)
        return both_CNX[..., :H], both_CNX[..., H:]

    return Entry(theirs, ours, to_hf, from_hf)
