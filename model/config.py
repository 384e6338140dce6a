"""ModelConfig: the sizes and choices that define a network."""

import dataclasses
from typing import Annotated, Literal

from model import rotary as rotary_lib
from model.rotary import Pattern, RotaryTable
from settings.checks import Bounds, Count, SinglePositive, check


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlaConfig:
    """The sizes of multi-head latent attention (DeepSeek-V2, 2405.04434).

    Attributes:
      kv_lora_rank: width of the latent that keys and values are made from.
      q_lora_rank: width of the queries' latent; None makes queries directly.
      qk_nope_head_dim: features of a head that are unrotated.
      qk_rope_head_dim: features of a head that are rotated, its key shared by all heads; even.
      v_head_dim: features of a value.
    """

    kv_lora_rank: Count
    q_lora_rank: Count | None = None
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A Llama-like decoder.

    Attributes:
      vocab_size: rows of the embedding; at least the tokenizer's size.
      embed_dim: width of the residual stream.
      num_layers: blocks.
      num_heads: query heads.
      num_kv_heads: key/value heads, which divide num_heads (grouped-query attention); None: as
        many as num_heads. `kv_heads` says how many there are.
      head_dim: features of a head. Keep it the same across sizes: the bound depends on it.
      mlp_dim: hidden width of the gated MLP.
      rotary: the variant of every layer, or several repeated over the layers (local and global
        bases, no rotation every fourth layer); of a layer, one for all its key/value heads, or
        several repeated over those. No default: a run that does not say its base does not start.
      window: tokens a query sees, itself included (None: all before it); one, or several repeated
        over the layers. In one layer, a control whose effective context is known.
      masked_distances: first and last of the distances, in tokens back from a query, that attention
        masks: a control whose hole is known. It needs num_layers=1, since two layers could relay
        masked tokens. It runs as plain float32 XLA over full rows on every device, whatever
        `attention` is.
      mla: makes attention multi-head latent attention; its sizes then stand in for head_dim
        (their sum, qk_nope_head_dim + qk_rope_head_dim) and num_kv_heads (num_heads).
      tie_embeddings: use the embedding matrix for the output too.
      qk_norm: RMSNorm on queries and keys, per head, before rotation.
      qkv_bias: add a learned bias to queries, keys and values, as Qwen 2 does; it starts at 0.
      norm_epsilon: added to the mean square in RMSNorm.
      shift_keys: mix into each key the previous token's, by a learned share per head that starts
        at half, so that an induction head fits in one layer ("smeared keys", Olsson et al. 2022)
        and small models learn retrieval in minutes. With mla both parts of a key are mixed, the
        part that heads share by a share of its own. Llama and its kin do not have it: such a
        model cannot be exported, and does in one layer what takes theirs two.
      align_query_key: start each key projection equal to its (first) query projection, the
        k = q + noise of Men et al. 2024; without it small models stay at chance for long. With
        mla it is the queries that start as the keys. It bears on the answer: all heads start at
        phase 0, that is in one window of distances, and a single edge may come from that start.
      attention: which kernel computes it: "auto" (the device's own where it can) or "xla" (plain
        XLA on every device; slower, for comparison or where the device's own is refused).
      compute_dtype: of matrix products; rotation, softmax, norms and loss are always float32.
      remat: what the backward pass recomputes: "none", "dots" (keep matrix products only), "qkv"
        (keep queries, keys, values, and each block's input and attention output), "full" (keep the
        inputs only); "offload_qkv" and "offload" as "qkv" and "full", with what is kept in host
        memory.
      loss_chunk: tokens of a row whose logits exist at once (None: as many as keep those of all
        rows of a device within 256 MiB of float32, on a TPU some 1/32 of its memory).
    """

    vocab_size: Count
    embed_dim: Count
    num_layers: Annotated[int, Bounds(at_least=1, at_most=10_000)]
    num_heads: Count
    num_kv_heads: Count | None = None
    head_dim: Count
    mlp_dim: Count
    rotary: Pattern
    window: Count | tuple[Count | None, ...] | None = None
    masked_distances: tuple[Count, Count] | None = None
    mla: MlaConfig | None = None
    tie_embeddings: bool = True
    qk_norm: bool = False
    qkv_bias: bool = False
    norm_epsilon: SinglePositive = 1e-5
    shift_keys: bool = False
    align_query_key: bool = False
    attention: Literal["auto", "xla"] = "auto"
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    remat: Literal["none", "dots", "qkv", "full", "offload_qkv", "offload"] = "none"
    loss_chunk: Count | None = None

    def __post_init__(self):
        check(self)
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must be a multiple of num_kv_heads={self.num_kv_heads}"
            )
        if self.masked_distances is not None:
            low, high = self.masked_distances
            if low > high:
                raise ValueError(
                    f"masked_distances={self.masked_distances} must be the first and the last "
                    "distance"
                )
            if self.num_layers > 1:
                raise ValueError(
                    f"masked_distances needs num_layers=1, got {self.num_layers}: two layers could "
                    "relay masked tokens"
                )
        if self.mla is not None:
            query_key = self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim
            sizes = (
                ("head_dim", self.head_dim, query_key),
                ("num_kv_heads", self.kv_heads, self.num_heads),
            )
            for name, given, expected in sizes:
                if given != expected:
                    raise ValueError(f"with mla, {name} must be {expected}, got {given}")
            if self.qk_norm:
                raise ValueError("mla has no qk_norm; set model.qk_norm=false")
            if self.qkv_bias:
                raise ValueError("mla has no qkv_bias; set model.qkv_bias=false")
            if self.align_query_key and self.mla.q_lora_rank is not None:
                raise ValueError(
                    "with mla, align_query_key needs queries without a latent of their own; "
                    "set model.mla.q_lora_rank=none"
                )
        # Here, where the head's size is known: from now on the config, and so the run, holds the
        # numbers that a variant of the user's own file gave, and no longer the file.
        own = rotary_lib.recorded(self.rotary, self.rope_head_dim)
        object.__setattr__(self, "rotary", own)
        rotary_lib.repeated(self.window, self.num_layers, "num_layers")
        # Refuses an odd head, a fraction without a pair, too long a pattern: now, not when
        # training starts.
        num_kinds = self.rotary_table(2).inv_freq.shape[1]
        if self.mla is not None and num_kinds > 1:
            raise ValueError("mla rotates one key for all heads; rotary cannot differ by head")

    @property
    def kv_heads(self) -> int:
        """How many key/value heads there are."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def rope_head_dim(self) -> int:
        """Features of a head that a variant sees: all, or MLA's rotated part."""
        return self.head_dim if self.mla is None else self.mla.qk_rope_head_dim

    def rotary_table(self, context_length: int, row_length: int | None = None) -> RotaryTable:
        """The frequencies of every layer and head: see `model.rotary.table`."""
        sizes = rotary_lib.HeadSizes(
            num_layers=self.num_layers,
            num_kv_heads=self.kv_heads,
            head_dim=self.rope_head_dim,
            num_unrotated=self.head_dim - self.rope_head_dim,
        )
        return rotary_lib.table(self.rotary, sizes, context_length, row_length)
