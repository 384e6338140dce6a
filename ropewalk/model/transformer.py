"""The Llama-like decoder: embed, a scan over one block, norm, unembed.

Parameters are nested dicts of arrays. Blocks are stacked along a leading axis (`[L, ...]`), so that
compile time does not grow with depth (unless `unroll`) and a sweep can `vmap` over members.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from ropewalk.model import scores, vocabulary
from ropewalk.model.attention import QueryKeyValue
from ropewalk.model.axes import (
    gather_stream,
    on_one_cpu,
    products_dtype,
    save_all_but_gathered,
    scatter_stream,
    shard_stream,
    weights_are_gathered,
)
from ropewalk.model.config import Architecture, PositionTable
from ropewalk.model.kernels.matmul import product
from ropewalk.model.layers import Mlp, Norm, normal_param
from ropewalk.model.mla import LatentAttention
from ropewalk.model.positions import cos_sin

Params = dict[str, Any]

# Names by `checkpoint_name`. The backward pass does not read the MLP's output.
_ATTENTION = ["query", "key", "value", "attention_out"]
# With these the backward pass does not run attention's forward pass again.
_KERNEL = ["attention_heads", "attention_lse"]
_save = jax.checkpoint_policies.save_only_these_names


def _offload(*names: str) -> Callable:
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=names,
        offload_src="device",
        offload_dst="pinned_host",
    )


REMAT_POLICIES = {
    "none": save_all_but_gathered,
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims, _save(*_KERNEL)
    ),
    "qkv": _save(*_ATTENTION, *_KERNEL),
    "full": _save(*_KERNEL),
    "offload_qkv": _offload("block_input", *_ATTENTION),
    "offload_qkv_only": _offload("block_input", "query", "key", "value"),
    "offload": _offload("block_input"),
}


def _keep(x_BTD: jax.Array) -> jax.Array:
    return x_BTD


class Block(nnx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); `norm_position` moves the norms."""

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        def norm(*positions: str):
            is_used = config.norm_position in positions
            return Norm(config, config.embed_dim) if is_used else _keep

        self.attention_norm, self.mlp_norm = norm("before", "both"), norm("before", "both")
        self.attention_out_norm, self.mlp_out_norm = norm("after", "both"), norm("after", "both")
        if config.mla is None:
            self.attention = scores.find(config.scores)(config, rngs=rngs)
        else:
            self.attention = LatentAttention(config, config.mla, rngs=rngs)
        self.mlp = Mlp(config, rngs=rngs)
        self.config = config

    def __call__(
        self, x_BTD, table: PositionTable, cos_sin, positions_BT, segment_ids_BT
    ) -> jax.Array:
        """Apply one layer; see `Attention.attend` for `table` and `cos_sin`."""
        q_k_v = self.compute_qkv(x_BTD, positions_BT)
        return self.attend(x_BTD, q_k_v, table, cos_sin, positions_BT, segment_ids_BT)

    def compute_qkv(self, x_BTD, positions_BT) -> QueryKeyValue:
        """Return attention's queries, keys, and values before rotation."""
        normed_BTD = gather_stream(self.attention_norm(x_BTD))
        return self.attention.compute_qkv(normed_BTD, positions_BT)

    def attend(
        self,
        x_BTD,
        q_k_v: QueryKeyValue,
        table: PositionTable,
        cos_sin,
        positions_BT,
        segment_ids_BT,
    ) -> jax.Array:
        """Apply the layer to the residual stream and the results of `compute_qkv`."""
        out_BTD = self.attention.attend(q_k_v, table, cos_sin, positions_BT, segment_ids_BT)
        return self.add_outputs(x_BTD, checkpoint_name(scatter_stream(out_BTD), "attention_out"))

    def add_outputs(self, x_BTD: jax.Array, out_BTD: jax.Array) -> jax.Array:
        """Add attention's output, and the MLP's, to the residual stream."""
        sum_BTD = x_BTD + self.attention_out_norm(out_BTD)
        mlp_input_BTD = self.mlp_norm(x_BTD if self.config.parallel_residual else sum_BTD)
        mlp_BTD = scatter_stream(self.mlp(gather_stream(mlp_input_BTD)))
        return sum_BTD + self.mlp_out_norm(mlp_BTD)


class Activations(NamedTuple):
    """Activations of all layers.

    Attributes:
      q_LBTNH, k_LBSKH, v_LBSKU: queries and keys before rotation and scales, and values, in
        attention's own layout; see `model.attention.order_by_pair`. With MLA, K is N.
      stream_LBTD: input of the layer, the residual stream.
    """

    q_LBTNH: Any
    k_LBSKH: Any
    v_LBSKU: Any
    stream_LBTD: Any


class Transformer(nnx.Module):
    """The module that holds the parameters. Other files call `hidden` and `unembed` below."""

    def __init__(self, config: Architecture, *, rngs: nnx.Rngs):
        V, D = config.vocab_size, config.embed_dim
        self.embedding = normal_param(rngs, (V, D), ("vocab", "embed"), fan_in=D)

        @nnx.split_rngs(splits=config.num_layers)
        @nnx.vmap
        def stack_blocks(rngs):
            return Block(config, rngs=rngs)

        self.blocks = stack_blocks(rngs)
        self.final_norm = Norm(config, D)
        if not config.tie_embeddings:
            self.output = normal_param(rngs, (V, D), ("vocab", "embed"), fan_in=D)
        self.config = config

    def __call__(
        self,
        table: PositionTable,
        tokens_BT,
        positions_BT,
        segment_ids_BT,
        *,
        return_activations: bool = False,
    ) -> tuple[jax.Array, Activations | None]:
        """Map token ids to normalized hidden states `[B, T, D]`, and to activations on request."""
        dtype = products_dtype(self.config.compute_dtype)

        def look_up(embedding_VD, tokens_BT):
            return vocabulary.look_up(
                vocabulary.gather_features(embedding_VD, dtype), tokens_BT, dtype
            )

        x_BTD = shard_stream(vocabulary.map_shards(look_up)(self.embedding[...], tokens_BT))
        x_BTD = scale_embedding(self.config, x_BTD)
        layers_cos_sin = _cos_sin_of_layers(table, positions_BT)
        # `scan` cannot scan over NNX modules, only over their parameters: merge one block per step.
        block_graph, block_params = nnx.split(self.blocks)

        def layer(x_BTD, layer_inputs):
            params, layer_table, layer_cos_sin = layer_inputs
            x_BTD = checkpoint_name(x_BTD, "block_input")
            block = nnx.merge(block_graph, params)
            q_k_v = block.compute_qkv(x_BTD, positions_BT)
            activations = Activations(*q_k_v, x_BTD) if return_activations else None
            x_BTD = block.attend(
                x_BTD, q_k_v, layer_table, layer_cos_sin, positions_BT, segment_ids_BT
            )
            return shard_stream(x_BTD), activations

        if self.config.remat != "none" or weights_are_gathered():
            policy = REMAT_POLICIES[self.config.remat]
            layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)
        inputs, unroll = (block_params, table, layers_cos_sin), self.config.unroll
        x_BTD, activations = jax.lax.scan(layer, x_BTD, inputs, unroll=unroll)
        return self.final_norm(x_BTD), activations


def _cos_sin_of_layers(table: PositionTable, positions_BT: jax.Array):
    """Return cosines and sines of all layers, `[L, B, T, K, R]`, before any layer reads them."""
    if not on_one_cpu():
        return jax.vmap(cos_sin, in_axes=(0, 0, None))(
            table.cycles_hi, table.cycles_lo, positions_BT
        )
    # XLA on a CPU would compute them again for every head that reads them, forward and backward.
    # It does not fuse into a loop. It unrolls a loop of one iteration, so loop over rows of layers.
    L, B = len(table.cycles_hi), len(positions_BT)
    hi, lo = (jnp.repeat(x_LKR, B, axis=0) for x_LKR in (table.cycles_hi, table.cycles_lo))
    inputs = hi, lo, jnp.tile(positions_BT, (L, 1))
    rows = jax.lax.map(lambda row: cos_sin(*row), inputs)
    return jax.tree.map(lambda x: x.reshape(L, B, *x.shape[1:]), rows)


def init(config: Architecture, seed: jax.Array | int) -> Params:
    """Draw float32 parameters; `seed` may be traced."""
    model = Transformer(config, rngs=nnx.Rngs(params=jax.random.key(seed)))
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@functools.cache
def _skeleton(make: Callable, config: Architecture):
    """Return the structure of the module `make(config)`, without arrays."""
    return nnx.split(nnx.eval_shape(lambda: make(config, rngs=nnx.Rngs(params=0))))


def build(make: Callable, config: Architecture, params: Params) -> Any:
    """Return the module `make(config, rngs=...)` with `params` as its parameters."""
    graph, state = _skeleton(make, config)
    state = nnx.clone(state)  # all callers share the cached skeleton
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


def abstract_params(config: Architecture) -> Params:
    """Return the shapes and dtypes of `init`, without computing anything."""
    return nnx.to_pure_dict(_skeleton(Transformer, config)[1])


def parameter_axes(config: Architecture) -> Params:
    """Return the logical axes of every parameter, a tree of tuples; "layers" is first in blocks."""
    _, state = _skeleton(Transformer, config)

    def axes(path, variable):
        stacked = ("layers",) if path[0] == "blocks" else ()
        return stacked + tuple(variable.get_metadata()["axes"])

    leaves = {path: axes(path, variable) for path, variable in state.flat_state()}
    return nnx.traversals.unflatten_mapping(leaves)


def hidden(
    config: Architecture,
    params: Params,
    table: PositionTable,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    segment_ids_BT: jax.Array,
) -> jax.Array:
    """Return hidden states after the last norm, `[B, T, D]` in the compute dtype.

    Args:
      config: the static part of the model.
      params: parameters; see `init`.
      table: `ModelConfig.position_table(trained context)`.
      tokens_BT: int32 ids.
      positions_BT: int32, position within the document.
      segment_ids_BT: int32, document of each token; attention never crosses documents.
    """
    model = build(Transformer, config, params)
    return model(table, tokens_BT, positions_BT, segment_ids_BT)[0]


def return_activations(
    config: Architecture, params: Params, *inputs: Any
) -> tuple[jax.Array, Activations]:
    """Return `hidden`, which takes the same inputs, and the activations of every layer."""
    return build(Transformer, config, params)(*inputs, return_activations=True)


def without_heads(params: Params, heads: Iterable[tuple[int, int]]) -> Params:
    """Remove attention heads: return parameters without their output.

    Args:
      params: of one member; not modified.
      heads: (layer, query head) pairs, from 0.

    Returns:
      Parameters whose output projection is 0 in the rows of these heads.

    Raises:
      ValueError: if a head does not exist.
    """
    attention = params["blocks"]["attention"]
    is_removed_LN = select_heads(attention["out"].shape[:2], heads)
    out_LNUD = jnp.where(is_removed_LN[..., None, None], 0, attention["out"])
    blocks = {**params["blocks"], "attention": {**attention, "out": out_LNUD}}
    return {**params, "blocks": blocks}


def select_heads(shape: tuple[int, ...], heads: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return which heads of L layers of N heads some (layer, query head) pairs are, bool `[L, N]`.

    Raises:
      ValueError: if a head does not exist.
    """
    L, N = shape
    is_selected_LN = np.zeros((L, N), bool)
    for layer, head in heads:
        if not (0 <= layer < L and 0 <= head < N):
            raise ValueError(
                f"no head {head} in layer {layer}: layers are 0 to {L - 1}, heads 0 to {N - 1}"
            )
        is_selected_LN[layer, head] = True
    return is_selected_LN


def without_pairs(config: Architecture, params: Params, pairs_LNR: np.ndarray) -> Params:
    """Remove pairs of features from heads: return parameters without their part of the logits.

    Args:
      config: the model.
      params: of one member; not modified.
      pairs_LNR: bool, which pairs of each query head, in the order of `PositionTable.inv_freq`.

    Returns:
      Parameters whose queries are 0 in these features.

    Raises:
      ValueError: if heads of a layer lose different pairs and qk_norm scales the queries of all,
        or pairs are no features of the projections (`model.scores`).
    """
    if config.scores != "rotary":
        raise ValueError(f"removing pairs needs plain queries, and model.scores={config.scores}")
    attention = params["blocks"]["attention"]
    if config.qk_norm:
        # Remove features after the norm: before it, a zero would change the other features.
        features_LNH = np.tile(pairs_LNR, 2)
        if config.qk_norm_across_heads:
            features_LX = features_LNH.reshape(len(features_LNH), -1)
        elif (pairs_LNR != pairs_LNR[:, :1]).any():
            raise ValueError(
                "qk_norm scales the queries of all heads alike: remove the same pairs from every "
                "head of a layer"
            )
        else:
            features_LX = features_LNH[:, 0]
        zero = {"scale": -1 if config.norm == "zero_centered_rms" else 0, "bias": 0}
        norm = attention["query_norm"].items()
        norm = {name: jnp.where(features_LX, zero[name], x_LX) for name, x_LX in norm}
        attention = {**attention, "query_norm": norm}
    else:
        name, halves = "query", [pairs_LNR, pairs_LNR]
        if config.mla is not None:
            rotated, rest = np.split(pairs_LNR, [config.rope_head_dim // 2], axis=-1)
            halves = [rest, rest, rotated, rotated]
            name = "query" if config.mla.q_lora_rank is None else "query_up"
        features_LNH = np.concatenate(halves, axis=-1)
        query = jnp.where(features_LNH[:, None], 0, attention[name])
        attention = {**attention, name: query}
        if config.qkv_bias:
            attention["query_bias"] = jnp.where(features_LNH, 0, attention["query_bias"])
    return {**params, "blocks": {**params["blocks"], "attention": attention}}


def scale_embedding(config: Architecture, embedding: jax.Array) -> jax.Array:
    """Return embeddings `[..., D]` as the first layer reads them."""
    return embedding * math.sqrt(config.embed_dim) if config.scale_embedding else embedding


def normalize(config: Architecture, final_norm: Params, x_BTD: jax.Array) -> jax.Array:
    """Apply the last norm to the residual stream; `final_norm` are its parameters."""
    return build(_final_norm, config, final_norm)(x_BTD)


def _final_norm(config: Architecture, *, rngs: nnx.Rngs) -> nnx.Module:
    return Norm(config, config.embed_dim)


def output_matrix(config: Architecture, params: Params) -> jax.Array:
    """Return the output matrix, `[V, D]`."""
    return params["embedding" if config.tie_embeddings else "output"]


def logits(output_VD: jax.Array, x_BTD: jax.Array) -> jax.Array:
    """Return float32 logits `[B, T, V]` of hidden states."""
    return product("BTD,VD->BTV", x_BTD, output_VD.astype(x_BTD.dtype))


def unembed(config: Architecture, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Return the logits of hidden states, with the output matrix of `params`."""
    # Accelerators multiply float32 in fewer bits unless told otherwise.
    with jax.default_matmul_precision("highest"):
        return logits(output_matrix(config, params), x_BTD)


@functools.partial(jax.jit, static_argnums=0)
def document_logits(
    config: Architecture, params: Params, table: PositionTable, tokens_BT, positions_BT=None
) -> jax.Array:
    """Return the logits of rows that are one document each, float32 `[B, T, V]`.

    Positions count from 0 unless given. Products are as precise as the compute dtype.
    """
    if positions_BT is None:
        positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    # Accelerators multiply float32 in fewer bits unless told otherwise.
    with jax.default_matmul_precision("highest"):
        rows = tokens_BT, positions_BT, jnp.ones_like(tokens_BT)
        return unembed(config, params, hidden(config, params, table, *rows))


def count_params(config: Architecture) -> dict[str, int]:
    """Count all parameters, and those in matrix products (without the input embedding)."""
    total = sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))
    embedding = config.vocab_size * config.embed_dim
    return {"total": total, "matmul": total if config.tie_embeddings else total - embedding}


def count_cached(config: Architecture) -> int:
    """Count the numbers that a generation cache stores per token, over all layers.

    These are keys and values of every key head, or with MLA the latent and the shared rotated key.
    """
    if config.mla is not None:
        return config.num_layers * (config.mla.kv_lora_rank + config.mla.qk_rope_head_dim)
    return config.num_layers * config.kv_heads * (config.head_dim + config.value_dim)


def describe_size(config: Architecture) -> str:
    """Describe the size of parameters and cache; for MLA also that of plain attention."""
    size = (
        f"{count_params(config)['total']:,} parameters, {count_cached(config):,} cached per token"
    )
    if config.mla is None:
        return size
    plain = dataclasses.replace(config, mla=None, head_dim=config.mla.v_head_dim)
    return f"{size} (with plain attention: {describe_size(plain)})"
