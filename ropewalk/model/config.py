"""The config of a model: `Architecture`, its static part, and `ModelConfig`, which adds positions.

`PositionTable` holds the numbers of the positions, as theory and programs read them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np

from ropewalk.model import rotary as rotary_lib
from ropewalk.model.rotary import Pattern, Rotary
from ropewalk.utils.checks import Bounds, Count, Layers, SinglePositive, check


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlaConfig:
    """Sizes of multi-head latent attention (DeepSeek-V2, 2405.04434).

    Attributes:
      kv_lora_rank: width of the latent that keys and values are projected from.
      q_lora_rank: width of the queries' latent; None projects queries directly.
      qk_nope_head_dim: unrotated features of a head.
      qk_rope_head_dim: rotated features of a head, even; all heads share their key.
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
class Architecture:
    """The static part of a Llama-like decoder: programs are compiled on it.

    Attributes:
      vocab_size: rows of the embedding; at least the tokenizer's size.
      embed_dim: width of the residual stream.
      num_layers: blocks.
      num_heads: query heads.
      num_kv_heads: key/value heads, a divisor of num_heads (grouped-query attention); None means
        num_heads. `kv_heads` is their number.
      head_dim: features of a head's queries and keys. Keep it the same across sizes: the bound
        depends on it.
      scores: how queries and keys are made of projections: "rotary", or a file of `model.scores`
        ("pope"). Other scores have two features for each projected one, and B_m says nothing of
        them.
      mlp_dim: hidden width of the MLP.
      masked_distances: first and last of the distances, in tokens back from a query, that attention
        masks: a control whose hole is known. It needs num_layers=1, since two layers could relay
        masked tokens. It runs as plain float32 XLA over full rows on every device, whatever
        `attention` is.
      mla: sizes of multi-head latent attention, which replaces grouped-query attention. Then
        head_dim must be qk_nope_head_dim + qk_rope_head_dim, and num_kv_heads num_heads.
      tie_embeddings: use the embedding matrix for the output too.
      qk_norm: normalize queries and keys before rotation, per head.
      qk_norm_across_heads: with qk_norm, normalize the features of all heads at once (OLMo 2).
      qkv_bias: add a learned bias to queries, keys and values, as Qwen 2 does; it starts at 0.
      out_bias, mlp_bias: the same for attention's output, and for each product of the MLP.
      mlp_gate: down(activation(gate(x)) * up(x)); False: down(activation(up(x))), without a gate.
      activation: of the MLP: "silu" (SwiGLU with a gate), "gelu" or its approximation "gelu_tanh".
      norm: kind of all norms: "rms"; "zero_centered_rms", whose parameter is added to 1 (Gemma); or
        "layer", LayerNorm with a bias (GPT-NeoX).
      norm_epsilon: added to the mean square in norms.
      norm_position: what attention and MLP normalize: their input ("before", Llama), their output
        ("after", OLMo 2), or "both" (Gemma 3).
      parallel_residual: attention and MLP of a block read the same residual stream (GPT-NeoX).
      scale_embedding: multiply embeddings by sqrt(embed_dim) (Gemma).
      scale_dim: q·k is divided by sqrt(scale_dim); None: head_dim, with other `scores` value_dim.
      shift_keys: key smearing: mix into each key the previous token's key, by a learned share per
        head that starts at half (Olsson et al. 2022). An induction head then fits in one layer, and
        small models learn retrieval in minutes. With mla both parts of a key are mixed, the part
        that heads share by a share of its own. Llama has no key smearing: such a model cannot be
        exported, and does in one layer what takes Llama two.
      align_query_key: start each key projection equal to its (first) query projection, the
        k = q + noise of Men et al. 2024; without it small models stay at chance for long. With
        mla the queries start as the keys. It affects the result: all heads start at phase 0, that
        is in one window of distances, and a single edge may come from that start.
      attention: kernel: "auto" (the kernel of the device where it applies) or "xla" (plain XLA on
        every device; slower, for comparison or where the kernel of the device is refused).
      compute_dtype: dtype of matrix products in training; "auto" is bfloat16 on accelerators that
        have it, else float32. Rotation, softmax, norms, and loss are float32.
      remat: what the backward pass recomputes: "none", "dots" (store matrix products only), "qkv"
        (store queries, keys, values, and each block's input and attention output), "full" (store
        the inputs only). The last three also store what attention's kernel reads in the backward
        pass, its output and log-sum-exp. "offload_qkv" and "offload" compute these again, and store
        what else "qkv" and "full" do in host memory; "offload_qkv_only" does not store the
        attention output.
      unroll: whether layers are compiled one after another, not as a loop. On one accelerator, a
        shallow model then takes less time, because no activations are stacked; compile time grows
        with depth.
      loss_chunk: tokens of a row whose logits exist at once. None limits the logits of all rows of
        a device to 256 MiB of float32, on accelerators to about 1/32 of their memory.
    """

    vocab_size: Annotated[int, Bounds(at_least=1, at_most=2**31 - 1)]
    embed_dim: Count
    num_layers: Layers
    num_heads: Count
    num_kv_heads: Count | None = None
    head_dim: Count
    scores: str = "rotary"
    mlp_dim: Count
    masked_distances: tuple[Count, Count] | None = None
    mla: MlaConfig | None = None
    tie_embeddings: bool = True
    qk_norm: bool = False
    qk_norm_across_heads: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    mlp_gate: bool = True
    activation: Literal["silu", "gelu", "gelu_tanh"] = "silu"
    norm: Literal["rms", "zero_centered_rms", "layer"] = "rms"
    norm_epsilon: SinglePositive = 1e-5
    norm_position: Literal["before", "after", "both"] = "before"
    parallel_residual: bool = False
    scale_embedding: bool = False
    scale_dim: Count | None = None
    shift_keys: bool = False
    align_query_key: bool = False
    attention: Literal["auto", "xla"] = "auto"
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    remat: Literal["none", "dots", "qkv", "full", "offload_qkv", "offload_qkv_only", "offload"] = (
        "none"
    )
    unroll: bool = False
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
        if self.scores != "rotary":
            from ropewalk.model import scores  # which imports this module

            scores.find(self.scores)
            if self.mla is not None:
                raise ValueError(f"model.scores={self.scores} has no latents; set model.mla=none")
        if self.qk_norm_across_heads and not self.qk_norm:
            raise ValueError("qk_norm_across_heads needs qk_norm; set model.qk_norm=true")
        if self.mla is not None:
            query_key = self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim
            sizes = (
                ("head_dim", self.head_dim, query_key),
                ("num_kv_heads", self.kv_heads, self.num_heads),
            )
            for name, size, expected in sizes:
                if size != expected:
                    raise ValueError(f"with mla, {name} must be {expected}, got {size}")
            for name in ("qk_norm", "qkv_bias", "out_bias"):
                if getattr(self, name):
                    raise ValueError(f"mla has no {name}; set model.{name}=false")
            if self.align_query_key and self.mla.q_lora_rank is not None:
                raise ValueError(
                    "with mla, align_query_key needs queries without a latent of their own; "
                    "set model.mla.q_lora_rank=none"
                )

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def logit_divisor(self) -> float:
        """Divisor of q·k: the root of `scale_dim`."""
        default = self.head_dim if self.scores == "rotary" else self.value_dim
        return math.sqrt(self.scale_dim or default)

    @property
    def value_dim(self) -> int:
        """Features of a head's values, and without MLA of its projections."""
        if self.mla is not None:
            return self.mla.v_head_dim
        return self.head_dim if self.scores == "rotary" else self.head_dim // 2

    @property
    def rope_head_dim(self) -> int:
        """Features of a head that a variant applies to: all, or MLA's rotated part."""
        return self.head_dim if self.mla is None else self.mla.qk_rope_head_dim


# Wider than any context: this window masks nothing.
NO_WINDOW = np.iinfo(np.int32).max
Window = Annotated[int, Bounds(at_least=1, at_most=NO_WINDOW)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PositionTable:
    """Everything that layers read about positions: one row for each layer and key/value head.

    It is a JAX pytree (`model.positions` registers it), whose float64 arrays become float32 in
    programs. Members of a sweep add a leading axis. K is the number of key/value heads, or 1 where
    all heads of every layer are alike. R counts the pairs that variants apply to.

    Attributes:
      cycles_hi, cycles_lo: uint32 `[L, K, R]`, `inv_freq` as the fraction of a cycle per token in
        units of 2^-32 and 2^-64 cycles.
      logit_scale: float64 `[L, K]`, multiplies q·k besides 1 / sqrt(head_dim).
      unrotated_logit_scale: float64 `[L, K]`, the same for unrotated features (also MLA's).
      query_floor, query_slope: float64 `[L, K]`. A query at position p is multiplied by
        max(query_floor, query_slope * ln(p + 1)): (1, 0) where log-n scaling is off.
      window: int32 `[L]`, tokens that a query attends to, itself included.
      inv_freq: float64 `[L, K, R + unrotated pairs]`, radians per token, of all pairs of the head:
        first those that variants apply to, then zeros for those that never rotate (MLA's). Only
        on the host: programs and stacked tables have an empty array.
    """

    cycles_hi: Any
    cycles_lo: Any
    logit_scale: Any
    unrotated_logit_scale: Any
    query_floor: Any
    query_slope: Any
    window: Any
    inv_freq: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Architecture):
    """A model: its architecture and its positions, which programs read as a `PositionTable`.

    Attributes:
      rotary: the variant of every layer, or several that repeat over the layers (local and global
        bases, no rotation every fourth layer). In one layer: one variant for all key/value heads,
        or several that repeat over those. It has no default: a run must state its base.
      window: tokens that a query attends to, itself included (None: all before it); one, or several
        that repeat over the layers. In one layer, a control whose effective context is known.
    """

    rotary: Pattern
    window: Window | tuple[Window | None, ...] | None = None

    def __post_init__(self):
        super().__post_init__()
        # The head size is known here, so replace a variant from a user's file by its numbers. The
        # run then needs the file no more.
        rotary = rotary_lib.record_frequencies(self.rotary, self.rope_head_dim)
        object.__setattr__(self, "rotary", rotary)
        # The table refuses an odd head, a fraction without a pair, and a pattern that is too long.
        num_tables = self.position_table(2).inv_freq.shape[1]
        if self.mla is not None and num_tables > 1:
            raise ValueError("mla rotates one key for all heads; rotary cannot differ by head")

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each layer."""
        return rotary_lib.repeat_pattern(self.window, self.num_layers, "num_layers")

    def check_rotation(self) -> None:
        """Raise ValueError for a share that is no number of pairs, and fields without an effect.

        Training calls this; imported models may have such fields.
        """
        features = self.rope_head_dim
        for variant in rotary_lib.unique_variants(self.rotary):
            wanted, rotated = variant.rotary_fraction * features, variant.rotary_dim(features)
            if abs(wanted - rotated) > 1e-3 * features:
                raise ValueError(
                    f"model.rotary.rotary_fraction={variant.rotary_fraction} of {features} features"
                    f" is {wanted:g}, and they rotate in pairs; use {rotated / features:g} "
                    f"({rotated}) or {(rotated + 2) / features:g} ({rotated + 2})"
                )
            if rotated < features and not variant.inv_freq(features).any():
                raise ValueError("model.rotary.rotary_fraction: nothing rotates here; leave it out")
            has_unrotated = rotated < features or self.mla is not None
            if not has_unrotated and variant.unrotated_logit_scale != variant.logit_scale:
                raise ValueError(
                    "model.rotary: mscale_all_dim and cool_rest need unrotated features"
                )

    @property
    def architecture(self) -> Architecture:
        """The static part: equal for models that differ in positions only."""
        names = [field.name for field in dataclasses.fields(Architecture)]
        return Architecture(**{name: getattr(self, name) for name in names})

    def forward_architecture(self) -> Architecture:
        """Return the static part for programs that do not train: evaluation, generation, probes.

        Float32, because bfloat16 logits tie, and ties are answers won or lost by an id's number.
        """
        return dataclasses.replace(
            self.architecture, compute_dtype="float32", remat="none", unroll=False
        )

    def position_table(self, context_length: int, row_length: int | None = None) -> PositionTable:
        """Return the frequencies, scales and windows of every layer and head, as numpy arrays.

        Args:
          context_length: trained context in tokens; log-n scaling is relative to it.
          row_length: tokens of the row, which only dynamic variants read; default:
            `context_length`.

        Raises:
          ValueError: if a pattern is longer than there are layers or heads, or a variant does not
            fit.
        """
        layers = [
            [head.at_length(row_length or context_length) for head in heads]
            for heads in rotary_lib.expand_pattern(self.rotary, self.num_layers, self.kv_heads)
        ]
        # Rows of one token have no distances, and ln 1 is 0.
        slopes = {"off": 0.0, "train": 1 / math.log(max(context_length, 2))}
        slopes["extrapolate"] = slopes["train"]

        def compute(value: Callable[[Rotary], Any]) -> np.ndarray:
            return np.array([[value(head) for head in heads] for heads in layers])

        inv_freq_LKR = compute(lambda head: head.inv_freq(self.rope_head_dim))
        # Two exact steps: a float64 has 53 bits, so its top 32 bits and the rest convert exactly.
        cycles = np.mod(inv_freq_LKR / (2 * np.pi), 1.0) * 2.0**32
        cycles_hi = np.floor(cycles)
        num_unrotated = (self.head_dim - self.rope_head_dim) // 2
        return PositionTable(
            cycles_hi=cycles_hi.astype(np.uint32),
            cycles_lo=np.floor((cycles - cycles_hi) * 2.0**32).astype(np.uint32),
            logit_scale=compute(lambda head: head.logit_scale),
            unrotated_logit_scale=compute(lambda head: head.unrotated_logit_scale),
            query_floor=compute(lambda head: 0.0 if head.log_n == "train" else 1.0),
            query_slope=compute(lambda head: slopes[head.log_n]),
            window=np.array([window or NO_WINDOW for window in self.windows], np.int32),
            inv_freq=np.pad(inv_freq_LKR, [(0, 0), (0, 0), (0, num_unrotated)]),
        )
